"""Drawn faces."""

import numpy as np

import cavia
from cavia.pictures.faces import AT_A_TIME


def test_faces_come_in_three_splits_of_bytes():
    faces = cavia.synthetic_faces(train=AT_A_TIME + 5, val=3, test=2, size=16)
    assert {split: pixels.shape for split, pixels in faces.pixels.items()} == {
        "train": (AT_A_TIME + 5, 16, 16, 3),
        "val": (3, 16, 16, 3),
        "test": (2, 16, 16, 3),
    }
    assert faces.of("train").dtype == np.uint8


def test_the_seed_decides():
    first, again, other = (cavia.synthetic_faces(4, 4, 4, size=16, seed=seed) for seed in (0, 0, 1))
    for split in ("train", "val", "test"):
        np.testing.assert_array_equal(first.of(split), again.of(split))
        assert (first.of(split) != other.of(split)).any()
    assert (first.of("train") != first.of("val")).any()
    assert first.settings != other.settings


def test_faces_differ_enough_that_adaptation_matters():
    faces = cavia.synthetic_faces(300, 1, 1, size=32).of("train") / 255
    # A model that cannot adapt knows the mean face at best; one number per picture and colour is the least to adapt.
    mean_face = ((faces - faces.mean(0)) ** 2).mean()
    mean_colour = ((faces - faces.mean((1, 2), keepdims=True)) ** 2).mean()
    assert mean_face > 0.03
    assert mean_colour > 0.01
