"""Batches of tasks, and the families that they are drawn from."""
