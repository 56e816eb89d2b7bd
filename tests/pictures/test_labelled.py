"""Readers of labelled pictures."""

import numpy as np
import pytest
from PIL import Image

import cavia
from cavia.pictures.labelled import read_classes, read_labelled_folder, read_miniimagenet, read_omniglot

SPLITS = ("train", "val", "test")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("CAVIA_CACHE", str(folder))
    return folder


def save_picture(path, seed=0, size=(7, 9)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def shown(path, size):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").resize((size, size), Image.Resampling.LANCZOS))


@pytest.fixture
def miniimagenet(tmp_path):
    """Two classes of three pictures in each split; the lists say .jpg, the files are .png."""
    root = tmp_path / "miniimagenet"
    for number, split in enumerate(SPLITS):
        lines = ["filename,label"]
        for i in range(6):
            label = f"n{number}{i % 2}"
            save_picture(root / "images" / f"{label}000{i}.png", seed=10 * number + i)
            lines.append(f"{label}000{i}.jpg,{label}")
        (root / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "pictures"
    for split in SPLITS:
        for name in ("bird", "cat"):
            for i in range(2):
                save_picture(root / split / f"{split} {name}" / f"{i}.png", seed=i)
    return root


def test_image_sets_check_their_labels():
    pixels = {split: np.zeros((2, 8, 8, 3), np.uint8) for split in SPLITS}
    labels = {"train": ["a", "b"], "val": ["c", "c"], "test": ["d", "d"]}
    images = cavia.ImageSet("mine", pixels, labels=labels)
    assert images.settings["classes"] == {"train": 2, "val": 1, "test": 1}
    assert "classes" not in cavia.ImageSet("mine", pixels).settings
    for wrong in (labels | {"val": ["c"]}, {"train": ["a", "b"]}):
        with pytest.raises(cavia.CaviaError, match=r"got [01] labels for the 2 pictures in 'val'"):
            cavia.ImageSet("mine", pixels, labels=wrong)


def test_miniimagenet_rows_are_resolved_by_their_stem(miniimagenet):
    images = read_classes(miniimagenet, 8)
    assert images.source == "Mini-ImageNet"
    assert images.names["val"] == [f"n10000{i}.png" for i in (0, 2, 4)] + [f"n11000{i}.png" for i in (1, 3, 5)]
    assert images.labels["val"] == ["n10"] * 3 + ["n11"] * 3
    for name, pixels in zip(images.names["val"], images.of("val"), strict=True):
        np.testing.assert_array_equal(pixels, shown(miniimagenet / "images" / name, 8))
    assert images.settings["classes"] == {"train": 2, "val": 2, "test": 2}


def test_miniimagenet_is_84_pixels_wide_by_default(miniimagenet):
    assert read_miniimagenet(str(miniimagenet)).size == 84


def test_miniimagenet_may_be_incomplete(miniimagenet):
    (miniimagenet / "images" / "n000000.png").unlink()
    (miniimagenet / "images" / "n210001.png").unlink()
    with pytest.warns(UserWarning, match="lacks 2 of the 18 pictures listed"):
        images = read_miniimagenet(miniimagenet, 8)
    assert images.labels["train"] == ["n00"] * 2 + ["n01"] * 3


def test_miniimagenet_without_pictures_or_lists_is_an_error(miniimagenet):
    for path in (miniimagenet / "images").iterdir():
        path.unlink()
    with pytest.raises(cavia.CaviaError, match="none of the 18 pictures"):
        read_classes(miniimagenet, 8)
    (miniimagenet / "val.csv").unlink()
    with pytest.raises(cavia.CaviaError, match=r"there is no .*val\.csv"):
        read_classes(miniimagenet, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,class\na.jpg,n1\n", r"val\.csv, line 1: expected the header filename,label, got 'file,class'"),
        ("", r"val\.csv, line 1: expected the header"),
        ("filename,label\nn100000.jpg,n10\nn100002.jpg\n", r"val\.csv, line 3: expected a file name and a label"),
        ("filename,label\nn100000.jpg,n10\nn100000.png,n10\n", "list n100000 twice"),
    ],
)
def test_wrong_lists_are_errors_that_name_the_line(miniimagenet, text, message):
    (miniimagenet / "val.csv").write_text(text)
    with pytest.raises(cavia.CaviaError, match=message):
        read_miniimagenet(miniimagenet, 8)


def test_lists_may_have_a_byte_order_mark_and_more_columns(miniimagenet):
    (miniimagenet / "val.csv").write_text("id,label,filename\n7,n10,n100000.jpg\n", encoding="utf-8-sig")
    assert read_miniimagenet(miniimagenet, 8).labels["val"] == ["n10"]


def test_a_class_in_two_splits_is_an_error_that_names_both(miniimagenet, folder, cache):
    save_picture(miniimagenet / "images" / "n019999.png")
    with (miniimagenet / "test.csv").open("a") as lines:
        lines.write("n019999.jpg,n01\n")
    with pytest.raises(cavia.CaviaError, match="the class 'n01' is in both 'train' and 'test'"):
        read_miniimagenet(miniimagenet, 8)
    save_picture(folder / "test" / "val cat" / "a.png")
    with pytest.raises(cavia.CaviaError, match="the class 'val cat' is in both 'val' and 'test'"):
        read_labelled_folder(folder, 8)
    assert not cache.exists()  # it is found out before anything is decoded


def flat_omniglot(root, characters=40):
    for i in range(1, characters + 1):
        part = "background" if i <= characters // 2 else "evaluation"
        for drawing in (1, 2):
            save_picture(root / part / f"{i:04}" / f"{i:04}_{drawing:02}.png", seed=i, size=(3, 3))


def test_omniglot_is_shuffled_over_both_parts(tmp_path):
    flat_omniglot(tmp_path)
    images = read_classes(tmp_path, 4)
    assert images.source == "Omniglot"
    classes = {split: sorted(set(images.labels[split])) for split in SPLITS}
    assert {split: len(names) for split, names in classes.items()} == {"train": 28, "val": 2, "test": 10}
    assert len(set().union(*classes.values())) == 40
    assert {name.partition("/")[0] for name in classes["test"]} == {"background", "evaluation"}
    assert classes["val"] == ["evaluation/0031", "evaluation/0038"]  # by SHA-256, the same everywhere
    for name, label in zip(images.names["train"], images.labels["train"], strict=True):
        assert name.startswith(label + "/")


def test_the_whole_of_omniglot_is_split_as_in_the_literature(tmp_path):
    save_picture(tmp_path / "one.png", size=(3, 3))
    drawing = (tmp_path / "one.png").read_bytes()
    for i in range(1, 1624):
        folder = tmp_path / "omniglot" / ("background" if i <= 964 else "evaluation") / f"{i:04}"
        folder.mkdir(parents=True)
        (folder / f"{i:04}_01.png").write_bytes(drawing)
    assert read_omniglot(tmp_path / "omniglot", 3).settings["classes"] == {"train": 1100, "val": 100, "test": 423}


def test_omniglot_as_distributed_has_the_same_classes_and_splits(tmp_path):
    flat_omniglot(tmp_path / "flat")
    for path in (tmp_path / "flat").rglob("*.png"):
        part, number, file = path.parts[-3:]
        target = tmp_path / "nested" / f"images_{part}" / f"Alphabet {int(number) % 3}" / f"character{number}" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    flat, nested = (read_classes(tmp_path / name, 4) for name in ("flat", "nested"))
    assert nested.source == "Omniglot"
    assert {s: sorted(flat.labels[s]) for s in SPLITS} == {s: sorted(nested.labels[s]) for s in SPLITS}


def test_both_layouts_of_omniglot_together_are_read_once(tmp_path):
    flat_omniglot(tmp_path)
    save_picture(tmp_path / "images_background" / "Latin" / "character01" / "0001_01.png")
    images = read_omniglot(tmp_path)
    assert images.size == 28
    assert sum(map(len, images.names.values())) == 80


def test_drawings_without_numbers_go_by_their_folder(tmp_path):
    for name in "abc":
        save_picture(tmp_path / "images_evaluation" / "Latin" / name / "drawing.png")
    labels = read_omniglot(tmp_path, 4).labels
    assert sorted(name for split in SPLITS for name in labels[split]) == [f"evaluation/Latin/{name}" for name in "abc"]


def test_omniglot_needs_its_folders_and_three_characters(tmp_path):
    with pytest.raises(cavia.CaviaError, match="Omniglot needs background/ or images_background/"):
        read_omniglot(tmp_path)
    flat_omniglot(tmp_path, characters=2)
    with pytest.raises(cavia.CaviaError, match=r"at least 3 characters are needed, .* has 2"):
        read_classes(tmp_path, 4)


def test_class_folders_may_hold_any_format_and_deeper_folders(folder):
    save_picture(folder / "train" / "train cat" / "deep" / "er" / "c.webp")
    save_picture(folder / "train" / "train cat" / "d.JPG")
    (folder / "train" / "notes.txt").write_text("no picture")
    images = read_classes(folder, 8)
    assert images.labels["train"] == ["train bird"] * 2 + ["train cat"] * 4
    assert images.names["train"][-1] == "train/train cat/deep/er/c.webp"
    np.testing.assert_array_equal(images.of("val")[1], shown(folder / "val" / "val bird" / "1.png", 8))


def test_pictures_outside_of_class_folders_are_named_and_left_out(folder):
    save_picture(folder / "val" / "loose.png")
    with pytest.warns(UserWarning, match=r"1 pictures in no class folder are left out: val/loose\.png"):
        images = read_labelled_folder(folder, 8)
    assert len(images.of("val")) == 4


def test_missing_folders_and_classes_are_named(tmp_path, folder):
    with pytest.raises(cavia.CaviaError, match=r"there is no folder .*missing;"):
        read_classes(tmp_path / "missing", 8)
    for path in list((folder / "val").rglob("*.png")):
        path.rename(folder / "val" / f"{path.parent.name} {path.name}")
    with pytest.raises(cavia.CaviaError, match=r"val has 4 pictures, but none in a class folder"):
        read_classes(folder, 8)
    for path in (folder / "val").glob("*.png"):
        path.unlink()
    with pytest.raises(cavia.CaviaError, match=r"val has no pictures"):
        read_classes(folder, 8)
    (folder / "val").rename(folder / "validation")
    with pytest.raises(cavia.CaviaError, match=r"there is no folder .*val; .* expected in train/<class>/"):
        read_classes(folder, 8)


def test_damaged_pictures_are_skipped_with_their_labels(folder):
    (folder / "train" / "train bird" / "1.png").write_bytes(b"no picture at all")
    for _ in range(2):  # decoded, then from the cache
        with pytest.warns(UserWarning, match=r"skipped 1 of 12 pictures as damaged: train/train bird/1\.png"):
            images = read_classes(folder, 8)
        assert images.labels["train"] == ["train bird", "train cat", "train cat"]
        assert len(images.of("train")) == 3
        np.testing.assert_array_equal(images.of("train")[1], shown(folder / "train" / "train cat" / "0.png", 8))


def test_the_cache_may_be_elsewhere(folder, cache, tmp_path):
    read_classes(folder, 8, cache=tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").rglob("pixels.npy"))
    assert not cache.exists()
