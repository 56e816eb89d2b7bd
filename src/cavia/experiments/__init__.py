"""The catalogue: each table and figure of the paper as data, with its published numbers, and the runner."""
