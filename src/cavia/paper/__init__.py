"""The paper's experiments: what to train, how it is measured, summed up and shown. Nothing else in cavia imports it."""
