"""Drawn characters."""

import numpy as np
import pytest
import torch

import cavia
from cavia.pictures.episodes import Episodes
from cavia.pictures.glyphs import AT_A_TIME, synthetic_glyphs


@pytest.fixture(scope="module")
def glyphs():
    return synthetic_glyphs(train=30, val=5, test=5, drawings=16)


def test_glyphs_come_in_classes_in_three_splits():
    glyphs = synthetic_glyphs(train=11, val=3, test=2, drawings=AT_A_TIME // 10 + 1, size=14)
    each = AT_A_TIME // 10 + 1
    assert {split: pixels.shape for split, pixels in glyphs.pixels.items()} == {
        split: (count * each, 14, 14, 3) for split, count in (("train", 11), ("val", 3), ("test", 2))
    }
    assert glyphs.labels["val"] == [name for name in ("val 0", "val 1", "val 2") for _ in range(each)]
    assert glyphs.labels["train"][-1] == "train 10"
    assert glyphs.settings["classes"] == {"train": 11, "val": 3, "test": 2}


def test_the_seed_decides():
    first, again, other = (synthetic_glyphs(3, 3, 3, drawings=2, size=14, seed=seed) for seed in (0, 0, 1))
    for split in ("train", "val", "test"):
        np.testing.assert_array_equal(first.of(split), again.of(split))
        assert (first.of(split) != other.of(split)).any()
    assert (first.of("train") != first.of("val")).any()
    assert first.settings != other.settings


def test_glyphs_are_black_on_white(glyphs):
    pixels = glyphs.of("train")
    assert (pixels[..., 0] == pixels[..., 2]).all()
    ink = 1 - pixels[..., 0] / 255.0
    share = ink.mean((1, 2))
    assert share.min() > 0.02
    assert share.max() < 0.45
    assert (ink.max((1, 2)) > 0.9).all()  # every drawing has a stroke that is black
    assert ink[:, 0].mean() < 0.01  # and lies inside of the picture


def test_drawings_of_a_class_differ(glyphs):
    assert len(np.unique(glyphs.of("train").reshape(480, -1), axis=0)) == 480


def test_the_same_glyphs_are_drawn_at_any_size():
    small, large = (synthetic_glyphs(4, 1, 1, drawings=2, size=size).of("train") for size in (28, 84))
    shrunk = large.reshape(8, 28, 3, 28, 3, 3).mean((2, 4))
    assert np.abs(shrunk - small).mean() < 4  # of 255


def test_pixels_alone_tell_something_but_not_all(glyphs):
    batch = Episodes(glyphs, channels=1).sample(100, None, None, torch.Generator().manual_seed(0))
    nearest = torch.cdist(batch.query_x.flatten(2), batch.support_x.flatten(2)).argmin(-1)
    accuracy = (batch.support_y.gather(1, nearest) == batch.query_y).float().mean()
    assert 0.4 < accuracy < 0.65  # by chance 0.2


@pytest.mark.parametrize("name", ["train", "val", "test", "drawings"])
def test_wrong_numbers_are_named(name):
    with pytest.raises(cavia.CaviaError, match=f"{name} must be at least 1, got 0"):
        synthetic_glyphs(**{name: 0})
