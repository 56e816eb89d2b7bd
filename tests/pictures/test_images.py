"""Readers of picture folders, and the cache of decoded pictures."""

import os

import numpy as np
import pytest
from PIL import Image

import cavia
from cavia.cache import cache_folder
from cavia.pictures.images import read_celeba, read_folder, read_images


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("CAVIA_CACHE", str(folder))
    return folder


def save_picture(path, seed=0, size=(20, 24), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.fixture
def celeba(tmp_path):
    root = tmp_path / "celeba"
    lines = []
    for i in range(12):
        save_picture(root / "img_align_celeba" / f"{i:06}.jpg", seed=i)
        lines.append(f"{i:06}.jpg {i % 3}")
    (root / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    return root


def arrays_in(cache):
    return sorted(cache.rglob("pixels.npy"))


def test_celeba_has_its_official_splits(celeba):
    images = read_images(celeba, 8)
    assert images.source == "CelebA"
    assert images.names["val"] == ["000001.jpg", "000004.jpg", "000007.jpg", "000010.jpg"]
    assert images.of("val").shape == (4, 8, 8, 3)
    with Image.open(celeba / "img_align_celeba" / "000004.jpg") as picture:
        expected = np.asarray(picture.convert("RGB").resize((8, 8), Image.Resampling.LANCZOS))
    np.testing.assert_array_equal(images.of("val")[1], expected)


def test_celeba_may_be_incomplete(celeba):
    (celeba / "img_align_celeba" / "000003.jpg").unlink()
    with pytest.warns(UserWarning, match="lacks 1 of the 12"):
        images = read_celeba(celeba, 8)
    assert images.names["train"] == ["000000.jpg", "000006.jpg", "000009.jpg"]


def test_celeba_without_its_list_or_with_a_wrong_one_is_an_error(celeba):
    (celeba / "list_eval_partition.txt").write_text("000000.jpg 0\n000001.jpg 7\n")
    with pytest.raises(cavia.CaviaError, match="line 2"):
        read_images(celeba, 8)
    (celeba / "list_eval_partition.txt").write_text("other.jpg 0\n")
    with pytest.raises(cavia.CaviaError, match="none of the 1 pictures"):
        read_images(celeba, 8)
    (celeba / "list_eval_partition.txt").unlink()
    with pytest.raises(cavia.CaviaError, match=r"there is no .*list_eval_partition\.txt"):
        read_images(celeba, 8)


def test_a_plain_folder_is_read_recursively_in_any_format_and_mode(tmp_path):
    root = tmp_path / "pictures"
    save_picture(root / "a.png", mode="RGBA")
    save_picture(root / "deep" / "er" / "b.JPG", mode="L")
    save_picture(root / "c.webp")
    save_picture(root / "d.gif", mode="P")
    (root / "notes.txt").write_text("no picture")
    names = read_folder(root, 8).names
    assert sorted(name for split in names.values() for name in split) == ["a.png", "c.webp", "d.gif", "deep/er/b.JPG"]


def test_the_split_of_a_picture_does_not_depend_on_the_others(tmp_path):
    root = tmp_path / "pictures"
    for i in range(60):
        save_picture(root / f"{i}.png", seed=i, size=(4, 4))
    before = read_folder(root, 4).names
    assert len(before["train"]) > len(before["val"]) > 0
    assert before["test"]
    (root / before["train"][0]).unlink()
    after = read_folder(root, 4).names
    assert after == before | {"train": before["train"][1:]}


def test_sub_folders_train_val_test_are_the_splits(tmp_path):
    root = tmp_path / "pictures"
    for name in ("train/a.png", "train/b.png", "val/c.png", "test/d.png", "elsewhere/e.png"):
        save_picture(root / name)
    assert read_folder(root, 8).names == {
        "train": ["train/a.png", "train/b.png"],
        "val": ["val/c.png"],
        "test": ["test/d.png"],
    }


def test_a_split_without_pictures_is_an_error_when_it_is_used(tmp_path):
    save_picture(tmp_path / "pictures" / "train" / "a.png")
    images = read_folder(tmp_path / "pictures", 8)
    with pytest.raises(cavia.CaviaError, match=r"'val' of folder has no pictures \(train 1, val 0, test 0\)"):
        images.of("val")
    with pytest.raises(cavia.CaviaError, match="did you mean 'train'"):
        images.of("training")


def test_an_empty_or_missing_folder_is_an_error_that_names_it(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(cavia.CaviaError, match=r"no pictures in the folder .*empty"):
        read_images(tmp_path / "empty", 8)
    with pytest.raises(cavia.CaviaError, match=r"no folder .*missing"):
        read_images(tmp_path / "missing", 8)


def test_damaged_pictures_are_named_counted_and_skipped(celeba):
    folder = celeba / "img_align_celeba"
    whole = (folder / "000003.jpg").read_bytes()
    (folder / "000003.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "000006.jpg").write_bytes(b"no picture at all")
    for _ in range(2):  # decoded, then from the cache
        with pytest.warns(UserWarning, match=r"skipped 2 of 12 .*: 000003.jpg, 000006.jpg"):
            images = read_images(celeba, 8)
    assert images.names["train"] == ["000000.jpg", "000009.jpg"]
    assert [len(images.of(split)) for split in ("train", "val", "test")] == [2, 4, 4]
    with Image.open(folder / "000001.jpg") as picture:
        expected = np.asarray(picture.convert("RGB").resize((8, 8), Image.Resampling.LANCZOS))
    np.testing.assert_array_equal(images.of("val")[0], expected)


def test_pictures_are_turned_upright(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:2] = 255  # a white bar on top
    for split in ("train", "val", "test"):
        path = tmp_path / "pictures" / split / "a.png"
        path.parent.mkdir(parents=True)
        exif = Image.Exif()
        exif[0x0112] = 3  # stored upside down
        Image.fromarray(pixels[::-1].copy()).save(path, exif=exif)
    np.testing.assert_array_equal(read_folder(tmp_path / "pictures", 8).of("train")[0], pixels)


def test_a_folder_of_nothing_but_damaged_pictures_is_an_error(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / "bad").mkdir(exist_ok=True)
        (tmp_path / "bad" / name).write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="skipped 2 of 2"),
        pytest.raises(cavia.CaviaError, match=r"none of the 2 pictures in .*bad"),
    ):
        read_images(tmp_path / "bad", 8)


def test_the_cache_is_used_again_and_keyed_by_files_and_size(celeba, cache, capsys):
    first = read_images(celeba, 8)
    assert "decoding 12 pictures" in capsys.readouterr().err
    (written,) = arrays_in(cache)
    stamp = written.stat().st_mtime_ns
    again = read_images(celeba, 8)
    assert capsys.readouterr().err == ""
    assert written.stat().st_mtime_ns == stamp
    np.testing.assert_array_equal(first.of("test"), again.of("test"))
    assert isinstance(again.of("test"), np.memmap)
    read_images(celeba, 6)
    assert len(arrays_in(cache)) == 2
    save_picture(celeba / "img_align_celeba" / "000002.jpg", seed=99, size=(21, 30))
    changed = read_images(celeba, 8)
    assert len(arrays_in(cache)) == 3
    assert (changed.of("test")[0] != first.of("test")[0]).any()


@pytest.mark.parametrize("damage", ["truncated", "no array", "no index", "bad index", "other shape"])
def test_a_damaged_cache_is_rebuilt(celeba, cache, capsys, damage):
    expected = np.array(read_images(celeba, 8).of("train"))
    (pixels,) = arrays_in(cache)
    index = pixels.with_name("index.json")
    if damage == "truncated":
        os.truncate(pixels, 500)
    elif damage == "no array":
        pixels.unlink()
    elif damage == "no index":
        index.unlink()
    elif damage == "bad index":
        index.write_text("[")
    else:
        np.save(pixels, np.zeros((3, 8, 8, 3), np.uint8))
    capsys.readouterr()
    np.testing.assert_array_equal(read_images(celeba, 8).of("train"), expected)
    assert "decoding" in capsys.readouterr().err
    assert len(list(cache.iterdir())) == 1  # no temporary folder stays


def test_a_cache_that_cannot_be_written_names_the_way_out(celeba, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(cavia.CaviaError, match="set CAVIA_CACHE"):
        read_images(celeba, 8)


def test_the_cache_is_in_the_users_cache_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.delenv("CAVIA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "cavia"


def test_image_sets_check_their_arrays():
    with pytest.raises(cavia.CaviaError, match="uint8"):
        cavia.ImageSet.from_array(np.zeros((10, 8, 8, 3), np.float32))
    with pytest.raises(cavia.CaviaError, match=r"\[10, 8, 6, 3\]|\[8, 8, 6, 3\]"):
        cavia.ImageSet.from_array(np.zeros((10, 8, 6, 3), np.uint8))
    with pytest.raises(cavia.CaviaError, match="at least 3"):
        cavia.ImageSet.from_array(np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(cavia.CaviaError, match="splits train, val, test"):
        cavia.ImageSet("mine", {"train": np.zeros((2, 8, 8, 3), np.uint8)})
