"""Pictures as tasks."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import cavia

SIZE = 8


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (40, SIZE, SIZE, 3), dtype=np.uint8)


def sample(family, tasks=5, support=10, query=0, seed=0, split="train"):
    return family.sample(tasks, support, query, torch.Generator().manual_seed(seed), split)


def colours_at(family, batch, x, split="train"):
    """What the pictures of the batch show at x [T, N, 2]."""
    pictures = family.images.of(split)[batch.attributes["picture"].numpy()]
    places = (x * (SIZE - 1)).round().long().numpy()
    return np.stack([picture[place[:, 0], place[:, 1]] for picture, place in zip(pictures, places, strict=True)]) / 255


@pytest.mark.parametrize("order", ["random", "ordered"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_points_are_places_and_colours_of_the_picture(pixels, order, split):
    family = cavia.Completion(pixels, size=SIZE, order=order)
    batch = sample(family, support=10, query=20, split=split)
    for x, y, count in ((batch.support_x, batch.support_y, 10), (batch.query_x, batch.query_y, 20)):
        assert x.shape == (5, count, 2)
        assert y.shape == (5, count, 3)
        assert y.dtype == torch.float32
        np.testing.assert_allclose(y.numpy(), colours_at(family, batch, x, split), atol=1e-6)


@pytest.mark.parametrize("query", [0, None, SIZE**2])
def test_the_query_can_be_all_pixels_in_row_major_order(pixels, query):
    batch = sample(cavia.Completion(pixels, size=SIZE), query=query)
    assert batch.query_x.shape == (5, SIZE**2, 2)
    torch.testing.assert_close(batch.query_x[:, 0], torch.zeros(5, 2))
    torch.testing.assert_close(batch.query_x[0, 1], torch.tensor([0, 1 / (SIZE - 1)]))
    torch.testing.assert_close(batch.query_x[:, -1], torch.ones(5, 2))
    shown = pixels[:32][batch.attributes["picture"].numpy()].reshape(5, SIZE**2, 3)
    np.testing.assert_allclose(batch.query_y.numpy(), shown / 255, atol=1e-6)


@pytest.mark.parametrize("support", [1, 10, SIZE**2 - 1, SIZE**2])
def test_no_pixel_comes_twice(pixels, support):
    batch = sample(cavia.Completion(pixels, size=SIZE), tasks=20, support=support, query=30)
    for x in (batch.support_x, batch.query_x):
        assert all(len(places.unique(dim=0)) == x.shape[1] for places in x)


def test_random_pixels_are_uniform_and_differ_between_tasks(pixels):
    batch = sample(cavia.Completion(pixels, size=SIZE), tasks=2000, support=16)
    assert not torch.equal(batch.support_x[0], batch.support_x[1])
    places = (batch.support_x * (SIZE - 1)).round().long()
    counts = torch.bincount((places[..., 0] * SIZE + places[..., 1]).flatten(), minlength=SIZE**2)
    assert (counts / 2000 - 16 / SIZE**2).abs().max() < 0.05


def test_ordered_pixels_are_the_first_in_row_major_order(pixels):
    batch = sample(cavia.Completion(pixels, size=SIZE, order="ordered"), support=10)
    expected = torch.tensor([[i // SIZE, i % SIZE] for i in range(10)]) / (SIZE - 1)
    torch.testing.assert_close(batch.support_x, expected.expand(5, -1, -1))


def test_the_same_generator_gives_the_same_batch(pixels):
    family = cavia.Completion(pixels, size=SIZE)
    first, again, other = (sample(family, query=7, seed=seed) for seed in (0, 0, 1))
    for name in ("support_x", "support_y", "query_x", "query_y"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.support_x, other.support_x)


def test_in_testing_no_picture_comes_twice_before_all_have_come(pixels):
    family = cavia.Completion(pixels, size=SIZE)
    index = sample(family, tasks=8, split="test").attributes["picture"]
    assert sorted(index[:4].tolist()) == sorted(index[4:].tolist()) == [0, 1, 2, 3]


def test_wrong_values_are_named(pixels):
    family = cavia.Completion(pixels, size=SIZE)
    with pytest.raises(cavia.CaviaError, match="support must be at most 64"):
        sample(family, support=65)
    with pytest.raises(cavia.CaviaError, match="query must be at most 64"):
        sample(family, query=65)
    with pytest.raises(cavia.CaviaError, match="support must be at least 1, got 0"):
        sample(family, support=0)
    with pytest.raises(cavia.CaviaError, match="tasks must be at least 1"):
        sample(family, tasks=0)
    with pytest.raises(cavia.CaviaError, match="did you mean 'ordered'"):
        cavia.Completion(pixels, size=SIZE, order="order")
    with pytest.raises(cavia.CaviaError, match="give size=8"):
        cavia.Completion(pixels, size=16)


def test_a_path_is_read_at_the_size_asked_for(tmp_path, pixels, monkeypatch):
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "cache"))
    for split in ("train", "val", "test"):
        (tmp_path / "pictures" / split).mkdir(parents=True)
        Image.fromarray(pixels[0]).save(tmp_path / "pictures" / split / "a.png")
    family = cavia.Completion(tmp_path / "pictures", size=SIZE)
    np.testing.assert_array_equal(family.images.of("train")[0], pixels[0])
    assert cavia.Completion(str(tmp_path / "pictures"), size=4).images.size == 4


def test_a_run_says_which_pictures_it_was_trained_on(tmp_path, pixels):
    family = cavia.Completion(pixels, size=SIZE, order="ordered")
    learner = cavia.CAVIA(cavia.MLP(2, 3, hidden=(8,), context=4), "mse")
    cavia.fit(learner, family, iterations=2, query=0, validation=cavia.Validation(2), run_dir=tmp_path, progress=False)
    written = json.loads((tmp_path / "config.json").read_text())["family"]
    images = {"source": "array", "train": 32, "val": 4, "test": 4}
    assert written == {"class": "Completion", "settings": {"images": images, "size": SIZE, "order": "ordered"}}
