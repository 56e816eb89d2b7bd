"""Tables, figures and one page from result files only: nothing here trains or loads a model."""
