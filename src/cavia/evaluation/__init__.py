"""How good a learner is: scores per task and per gradient step, intervals, and probes of what it learned."""
