"""From a table to predictions by the command line: fit, adapt, predict, embed."""
