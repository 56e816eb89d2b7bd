"""What can be done with a trained model: open it with its tasks, complete a picture, watch a policy."""
