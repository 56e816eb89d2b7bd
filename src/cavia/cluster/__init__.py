"""A Ray cluster: the connection to it, what its nodes must have in common, storage that all of them reach."""
