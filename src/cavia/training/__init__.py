"""The outer loop: one meta-step, the loop around it, checkpoints and progress."""
