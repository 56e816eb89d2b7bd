"""A user's own data as tasks, arrays or a table: reading, columns as numbers, a model of it, what it predicts."""
