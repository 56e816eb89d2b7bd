"""What every learner, network, family of tasks and environment promises, as checks that users can call on their own."""
