"""Experiments on pictures run on a handful of drawn faces and glyphs."""

from functools import cache

import pytest

from cavia.pictures import datasets
from cavia.pictures.faces import synthetic_faces
from cavia.pictures.glyphs import synthetic_glyphs


@cache
def few_faces(size=32):
    return synthetic_faces(train=12, val=6, test=6, size=size)


@cache
def few_glyphs(size=28):
    return synthetic_glyphs(train=6, val=4, test=4, drawings=8, size=size)


@pytest.fixture(autouse=True)
def little_data(monkeypatch):
    for name, draw in (("CELEBA", few_faces), ("MINI_IMAGENET", few_glyphs), ("OMNIGLOT", few_glyphs)):
        monkeypatch.setitem(vars(getattr(datasets, name)), "draw", draw)
    monkeypatch.setattr(datasets, "synthetic_faces", few_faces)
    monkeypatch.setattr(datasets, "synthetic_glyphs", few_glyphs)
