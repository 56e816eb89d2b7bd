"""Experiments on pictures run on a handful of drawn faces."""

import pytest

from cavia.experiments import completion
from cavia.tasks.synthetic import synthetic_faces


@pytest.fixture(scope="session")
def few_faces():
    return synthetic_faces(train=12, val=6, test=6)


@pytest.fixture(autouse=True)
def little_data(few_faces, monkeypatch):
    monkeypatch.setattr(completion, "synthetic_faces", lambda: few_faces)
