"""Runs the cells of experiments: on the cores of this machine, or on a cluster."""
