"""Compiled code where PyTorch has no fast operation."""
