"""Runs experiments: cells on the cores of this machine, one process each."""
