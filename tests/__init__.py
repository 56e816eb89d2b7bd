"""The test suite. With several workers, each computes with one thread: more would wait for each other."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when PyTorch is imported
