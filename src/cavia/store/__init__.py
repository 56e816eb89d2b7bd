"""Adapted contexts on disk, by task id."""
