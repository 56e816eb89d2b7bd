"""The paper's experiments: training, measurement, summaries and reports. Nothing else in cavia imports this package."""
