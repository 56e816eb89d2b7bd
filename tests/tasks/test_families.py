"""What every family of tasks keeps to."""

import numpy as np
import pytest
import torch

import cavia
from cavia.pictures.episodes import Episodes
from cavia.pictures.glyphs import synthetic_glyphs

TASKS, SUPPORT, QUERY = 6, 10, 15
SPLITS = ("train", "val", "test")


def pictures():
    return np.random.default_rng(0).integers(0, 256, (100, 8, 8, 3), dtype=np.uint8)


def own():
    generator = torch.Generator().manual_seed(0)
    return cavia.Tasks([(torch.randn(30, 2, generator=generator), torch.randn(30, generator=generator))] * 60)


FAMILIES = {
    "own": own,
    "sine": cavia.Sine,
    "completion": lambda: cavia.Completion(pictures(), size=8),
    "completion, ordered": lambda: cavia.Completion(pictures(), size=8, order="ordered"),
    "episodes": lambda: Episodes(synthetic_glyphs(9, 7, 6, drawings=6, size=8), queries=3),
    "episodes, rotated": lambda: Episodes(synthetic_glyphs(9, 7, 6, 6, size=8), queries=3, channels=1, rotations=True),
}


@pytest.fixture(params=FAMILIES, scope="module")
def family(request):
    return FAMILIES[request.param]()


def sample(family, seed=0, tasks=TASKS, split="train"):
    return family.sample(tasks, SUPPORT, QUERY, torch.Generator().manual_seed(seed), split)


def tensors(batch):
    points = {name: getattr(batch, name) for name in ("support_x", "support_y", "query_x", "query_y")}
    return points | dict(batch.attributes)


@pytest.mark.parametrize("split", SPLITS)
def test_points_come_as_asked_for(family, split):
    batch = sample(family, split=split)
    assert len(batch) == TASKS
    for x, y, count in ((batch.support_x, batch.support_y, SUPPORT), (batch.query_x, batch.query_y, QUERY)):
        assert x.shape[:2] == y.shape[:2] == (TASKS, count)
        assert x.dtype == torch.float32
        assert x.isfinite().all()
        assert y.isfinite().all()
    assert batch.attributes
    assert all(len(value) == TASKS for value in batch.attributes.values())


@pytest.mark.parametrize("split", SPLITS)
def test_the_generator_decides_and_nothing_else(family, split):
    torch.manual_seed(0)
    first, again, other = (tensors(sample(family, seed, split=split)) for seed in (4, 4, 5))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert any(not torch.equal(value, other[name]) for name, value in first.items())
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1))  # the global generator was left alone


def test_the_next_batch_is_another(family):
    generator = torch.Generator().manual_seed(0)
    first, second = (family.sample(TASKS, SUPPORT, QUERY, generator) for _ in range(2))
    assert not torch.equal(first.support_y, second.support_y) or not torch.equal(first.support_x, second.support_x)


def test_wrong_numbers_and_splits_are_named(family):
    with pytest.raises(cavia.CaviaError, match="tasks must be at least 1, got 0"):
        sample(family, tasks=0)
    with pytest.raises(cavia.CaviaError, match=r"support must be at least \d, got 0"):
        family.sample(TASKS, 0, QUERY, torch.Generator())
    with pytest.raises(cavia.CaviaError, match="unknown split 'training'; did you mean 'train'"):
        sample(family, split="training")
