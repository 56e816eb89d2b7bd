"""A trained model behind HTTP: `cavia serve`."""
