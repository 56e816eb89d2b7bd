"""Pictures: data sets on disk and drawn ones, the tasks that they give, and completion of one's own."""
