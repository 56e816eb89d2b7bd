"""What can be done with a trained model: open it with its tasks, watch a policy."""
