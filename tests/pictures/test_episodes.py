"""Few-shot classification tasks."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import cavia
from cavia.pictures.episodes import Episodes

SIZE = 6
SPLITS = ("train", "val", "test")


def labelled(counts, size=SIZE, start=0):
    """Random pictures, so many of each class; no two alike."""
    generator = np.random.default_rng(start)
    sizes = {split: sum(counts[split].values()) for split in SPLITS}
    pixels = {s: generator.integers(0, 256, (n, size, size, 3), dtype=np.uint8) for s, n in sizes.items()}
    labels = {split: [name for name, n in counts[split].items() for _ in range(n)] for split in SPLITS}
    for split in SPLITS:
        generator.shuffle(labels[split])
    return cavia.ImageSet("random", pixels, labels=labels)


def even(classes=8, each=10):
    return labelled({split: {f"{split} {c}": each for c in range(classes)} for split in SPLITS})


def sample(family, tasks=7, support=None, query=None, seed=0, split="train"):
    return family.sample(tasks, support, query, torch.Generator().manual_seed(seed), split)


def found_at(images, split, x, channels=3):
    """The index in the split of every picture of x [T, N, channels, size, size] as [T, N]; every one must be there."""
    known = torch.from_numpy(images.of(split)).permute(0, 3, 1, 2).float()
    known = (known if channels == 3 else known.mean(1, keepdim=True)) / 255
    distance = (x.flatten(0, 1).unsqueeze(1) - known).abs().amax((2, 3, 4))  # [T·N, pictures]
    assert distance.amin(1).max() < 1e-6
    return distance.argmin(1).view(x.shape[:2])


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("channels", [1, 3])
def test_points_are_pictures_of_the_classes_that_the_labels_say(split, channels):
    images = even()
    family = Episodes(images, ways=4, shots=2, queries=3, channels=channels)
    batch = sample(family, split=split)
    for x, y, count in ((batch.support_x, batch.support_y, 8), (batch.query_x, batch.query_y, 12)):
        assert x.shape == (7, count, channels, SIZE, SIZE)
        assert x.dtype == torch.float32
        assert y.dtype == torch.int64
        assert torch.equal(y, torch.arange(4).repeat_interleave(count // 4).expand(7, -1))
        index = found_at(images, split, x, channels)
        classes = batch.attributes["classes"].gather(1, y)
        for place, name in zip(index.flatten().tolist(), classes.flatten().tolist(), strict=True):
            assert images.labels[split][place] == family.classes[split][name]


def test_classes_of_a_task_are_distinct_and_no_picture_comes_twice():
    images = even(classes=6, each=5)
    batch = sample(Episodes(images, ways=6, shots=2, queries=3), tasks=50)
    assert all(len(classes.unique()) == 6 for classes in batch.attributes["classes"])
    index = torch.cat([found_at(images, "train", batch.support_x), found_at(images, "train", batch.query_x)], 1)
    assert all(len(places.unique()) == 30 for places in index)


def test_classes_labels_and_pictures_are_uniform():
    images = even(classes=6, each=5)
    batch = sample(Episodes(images, ways=3, shots=1, queries=2), tasks=3000)
    classes = batch.attributes["classes"]
    for label in range(3):  # each class gets each label equally often
        share = torch.bincount(classes[:, label], minlength=6) / 3000
        assert (share - 1 / 6).abs().max() < 0.03
    for x, expected in ((batch.support_x[:500], 1 / 30), (batch.query_x[:500], 1 / 30)):
        share = torch.bincount(found_at(images, "train", x).flatten(), minlength=30) / x.shape[:2].numel()
        assert (share - expected).abs().max() < 0.02


def test_the_family_has_its_own_numbers_of_points_and_takes_others():
    family = Episodes(even(), ways=5, shots=2, queries=4)
    assert (family.support, family.query) == (10, 20)
    own, other = sample(family), sample(family, support=5, query=45)
    assert (own.support_x.shape[1], own.query_x.shape[1]) == (10, 20)
    assert (other.support_x.shape[1], other.query_x.shape[1]) == (5, 45)


def test_classes_may_be_of_different_sizes():
    counts = {"a": 3, "b": 4, "c": 30}
    images = labelled({split: {split + name: count for name, count in counts.items()} for split in SPLITS})
    family = Episodes(images, ways=3, shots=1, queries=2)
    batch = sample(family, tasks=200)
    for x, y in ((batch.support_x, batch.support_y), (batch.query_x, batch.query_y)):
        index, classes = found_at(images, "train", x), batch.attributes["classes"].gather(1, y)
        names = [family.classes["train"][c] for c in classes.flatten().tolist()]
        assert names == [images.labels["train"][place] for place in index.flatten().tolist()]
    seen = found_at(images, "train", torch.cat([batch.support_x, batch.query_x], 1)).unique()
    assert len(seen) == 37  # all of them come, of large classes too


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("rotations", [False, True])
@pytest.mark.parametrize("invert", [False, True])
def test_pictures_are_channels_last_in_memory_without_a_copy(channels, rotations, invert):
    family = Episodes(even(), queries=2, channels=channels, rotations=rotations, invert=invert)
    batch = sample(family, tasks=3)
    for x in (batch.support_x, batch.query_x):
        flat = x.flatten(0, 1)
        assert flat.is_contiguous(memory_format=torch.channels_last)
        assert flat.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("channels", [1, 3])
def test_inverted_pictures_are_one_minus_the_others(channels):
    images = even()
    plain, inverted = (sample(Episodes(images, queries=2, channels=channels, invert=i)) for i in (False, True))
    torch.testing.assert_close(inverted.support_x, 1 - plain.support_x)
    torch.testing.assert_close(inverted.query_x, 1 - plain.query_x)
    assert 0 <= plain.query_x.min() < 0.2
    assert 0.8 < plain.query_x.max() <= 1


def test_rotations_make_four_classes_of_one():
    images = even(classes=2)
    family = Episodes(images, ways=8, shots=2, queries=3, rotations=True)
    batch = sample(family, tasks=20)
    assert torch.equal(batch.attributes["classes"].sort(1).values, torch.arange(8).expand(20, -1))
    for x, y in ((batch.support_x, batch.support_y), (batch.query_x, batch.query_y)):
        classes = batch.attributes["classes"].gather(1, y)
        upright = torch.stack(
            [
                torch.stack([picture.rot90(-(c % 4), dims=(1, 2)) for picture, c in zip(xs, cs.tolist(), strict=True)])
                for xs, cs in zip(x, classes, strict=True)
            ]
        )
        index = found_at(images, "train", upright)
        names = [family.classes["train"][c // 4] for c in classes.flatten().tolist()]
        assert names == [images.labels["train"][place] for place in index.flatten().tolist()]


def test_too_few_classes_or_pictures_are_named():
    with pytest.raises(cavia.CaviaError, match="ways must be at most 3, the classes in 'train' of random, got 5"):
        Episodes(even(classes=3))
    counts = {split: {f"{split} {c}": 10 for c in range(5)} for split in SPLITS}
    counts["val"]["val 3"] = 7
    images = labelled(counts)
    with pytest.raises(cavia.CaviaError, match=r"the class 'val 3' in 'val' of random has 7 pictures, .* needs 8"):
        Episodes(images, queries=7)
    family = Episodes(images, queries=6)
    sample(family, query=35)
    with pytest.raises(cavia.CaviaError, match=r"'val 3' .* has 7 pictures, .* needs 8"):
        sample(family, query=35, split="val")
    del counts["test"]["test 0"]
    with pytest.raises(cavia.CaviaError, match="ways must be at most 4, the classes in 'test'"):
        Episodes(labelled(counts), queries=5)


def test_an_empty_split_is_an_error():
    with pytest.raises(cavia.CaviaError, match="ways must be at most 0, the classes in 'val'"):
        Episodes(labelled({"train": {"a": 3, "b": 3}, "val": {}, "test": {"c": 3, "d": 3}}), ways=2, queries=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ways": 1}, "ways must be at least 2, got 1"),
        ({"shots": 0}, "shots must be at least 1, got 0"),
        ({"queries": 0}, "queries must be at least 1, got 0"),
        ({"channels": 2}, r"channels must be 1 \(grey\) or 3 \(RGB\), got 2"),
        ({"size": 84}, "have size 6, but size is 84; give size=6"),
    ],
)
def test_wrong_settings_are_named(arguments, message):
    with pytest.raises(cavia.CaviaError, match=message):
        Episodes(even(), **arguments)


@pytest.mark.parametrize("name", ["support", "query"])
def test_points_must_be_a_multiple_of_the_ways(name):
    family = Episodes(even(), queries=2)
    with pytest.raises(cavia.CaviaError, match=f"{name} must be a multiple of 5, the ways, got 7"):
        sample(family, **{name: 7})
    with pytest.raises(cavia.CaviaError, match=f"{name} must be at least 5, got 4"):
        sample(family, **{name: 4})


def test_pictures_without_labels_are_an_error():
    with pytest.raises(cavia.CaviaError, match="the pictures of array have no labels"):
        Episodes(cavia.ImageSet.from_array(np.zeros((10, 8, 8, 3), np.uint8)))


def test_a_folder_is_read_at_the_size_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "cache"))
    for split in SPLITS:
        for name in "ab":
            folder = tmp_path / "pictures" / split / (split + name)
            folder.mkdir(parents=True)
            for i in range(3):
                Image.new("L", (9, 9), 40 * i).save(folder / f"{i}.png")
    with pytest.raises(cavia.CaviaError, match="size is needed"):
        Episodes(tmp_path / "pictures", ways=2, queries=2)
    batch = sample(Episodes(str(tmp_path / "pictures"), ways=2, queries=2, size=5), tasks=2)
    assert batch.query_x.shape == (2, 4, 3, 5, 5)


def test_settings_say_all_that_decides_the_tasks():
    family = Episodes(even(classes=6, each=4), queries=3, channels=1, rotations=True, invert=True)
    counts = {"train": 24, "val": 24, "test": 24, "classes": {"train": 6, "val": 6, "test": 6}}
    assert json.loads(json.dumps(family.settings)) == {
        "images": {"source": "random", **counts},
        "ways": 5,
        "shots": 1,
        "queries": 3,
        "size": SIZE,
        "channels": 1,
        "rotations": True,
        "invert": True,
    }
