"""The promises of every learner, network, task family and environment, as checks that users can call on their own."""
