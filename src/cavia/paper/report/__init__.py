"""Tables, figures and a report page, from result files only: nothing here trains or loads a model."""
