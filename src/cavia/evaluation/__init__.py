"""Evaluation of learners: scores per task and per gradient step, intervals, and probes of what they learned."""
