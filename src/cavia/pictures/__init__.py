"""Pictures: data sets on disk and drawn ones, the tasks made from them, and completing a user's picture."""
