"""Experiments on pictures run on a handful of drawn faces and glyphs."""

import pytest

from cavia.experiments import completion, fewshot
from cavia.tasks.glyphs import synthetic_glyphs
from cavia.tasks.synthetic import synthetic_faces


@pytest.fixture(scope="session")
def few_faces():
    return synthetic_faces(train=12, val=6, test=6)


@pytest.fixture(scope="session")
def few_glyphs():
    return {size: synthetic_glyphs(train=6, val=4, test=4, drawings=8, size=size) for size in (28, 84)}


@pytest.fixture(autouse=True)
def little_data(few_faces, few_glyphs, monkeypatch):
    monkeypatch.setattr(completion, "synthetic_faces", lambda: few_faces)
    monkeypatch.setattr(fewshot, "synthetic_glyphs", lambda size: few_glyphs[size])
