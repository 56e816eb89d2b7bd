"""What adapts: the inner loop, and every method as a configuration of it."""
