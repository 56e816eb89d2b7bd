"""What is learned: batches of tasks and the families that they are drawn from."""
