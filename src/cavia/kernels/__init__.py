"""Compiled code for what PyTorch has no fast operation for."""
