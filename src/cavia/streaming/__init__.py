"""Millions of tasks from Parquet files, a few row groups at a time: on this machine, or on a Ray cluster."""
