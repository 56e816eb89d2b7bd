"""Data sets by their names: opened where they lie, drawn where they do not, found again for a trained model."""

import csv
from pathlib import Path

import pytest
from PIL import Image

from cavia.errors import CaviaError
from cavia.pictures.completion import Completion
from cavia.pictures.datasets import CELEBA, DATA_SETS, MINI_IMAGENET, OMNIGLOT
from cavia.pictures.episodes import Episodes
from cavia.pictures.faces import synthetic_faces
from cavia.pictures.glyphs import synthetic_glyphs

NOWHERE = Path("nowhere")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "cache"))


def write_miniimagenet(root):
    """Three grey classes in each split, of four pictures."""
    folder = root / "miniimagenet"
    (folder / "images").mkdir(parents=True)
    for split in ("train", "val", "test"):
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["filename", "label"])
            for label in range(3):
                for number in range(4):
                    name = f"{split}{label}{number}.jpg"
                    Image.new("RGB", (40, 40), (40 * label, 60, 60)).save(folder / "images" / name)
                    writer.writerow([name, f"{split} {label}"])


def write_omniglot(root):
    """One alphabet in each part, of characters enough for a split."""
    for part, characters in (("images_background", 6), ("images_evaluation", 4)):
        for alphabet in range(5):
            for character in range(characters):
                folder = root / "omniglot" / part / f"alphabet{alphabet}" / f"character{character:02}"
                folder.mkdir(parents=True)
                for number in range(3):
                    Image.new("L", (30, 30), 255).save(folder / f"{number}.png")


@pytest.mark.parametrize("data_set", DATA_SETS.values(), ids=DATA_SETS)
def test_data_that_are_not_there_are_one_line_with_what_to_do(data_set, tmp_path):
    with pytest.raises(CaviaError) as error:
        data_set.open(tmp_path)
    message = str(error.value)
    assert message.startswith(f"no {data_set.name} in {tmp_path / data_set.folder}: put ")
    assert "--data synthetic" in message
    assert "\n" not in message


def test_half_of_celeba_is_not_there(tmp_path):
    (tmp_path / "celeba" / "img_align_celeba").mkdir(parents=True)
    with pytest.raises(CaviaError, match=r"list_eval_partition\.txt"):
        CELEBA.open(tmp_path)


def test_drawn_pictures_have_the_size_that_is_asked_for():
    assert MINI_IMAGENET.draw is OMNIGLOT.draw
    images = OMNIGLOT.open(NOWHERE, synthetic=True, size=14)
    assert images.of("test").shape[1] == 14
    assert OMNIGLOT.open(NOWHERE, synthetic=True).of("test").shape[1] == 28


def test_pictures_on_disk_are_read_at_the_size_that_is_asked_for(tmp_path):
    write_miniimagenet(tmp_path)
    images = MINI_IMAGENET.open(tmp_path, size=20)
    assert images.source == MINI_IMAGENET.name == "Mini-ImageNet"
    assert images.of("val").shape[1:3] == (20, 20)


def test_sources_are_the_names_of_their_data_sets(tmp_path):
    write_omniglot(tmp_path)
    assert OMNIGLOT.open(tmp_path).source == "Omniglot"
    assert DATA_SETS.keys() == {"CelebA", "Mini-ImageNet", "Omniglot"}


# The tasks of a trained model, found again


def test_a_family_is_found_by_the_name_of_its_source_whatever_its_channels(tmp_path):
    write_miniimagenet(tmp_path)
    write_omniglot(tmp_path)
    for data_set, channels in ((MINI_IMAGENET, 1), (MINI_IMAGENET, 3), (OMNIGLOT, 1), (OMNIGLOT, 3)):
        family = Episodes(data_set.open(tmp_path, size=20), 2, 1, 1, channels=channels)
        reopened = Episodes.reopen(family.settings, tmp_path)
        assert reopened.images.source == data_set.name
        assert (reopened.settings, reopened.channels, reopened.size) == (family.settings, channels, 20)


def test_drawn_families_are_drawn_again(monkeypatch):
    faces, glyphs = synthetic_faces(train=3, val=3, test=3), synthetic_glyphs(train=3, val=3, test=3, drawings=4)
    monkeypatch.setattr("cavia.pictures.faces.synthetic_faces", lambda size: faces)
    monkeypatch.setattr("cavia.pictures.glyphs.synthetic_glyphs", lambda size: glyphs)
    for family in (Completion(faces, 32, "ordered"), Episodes(glyphs, 2, 1, 1, channels=1, rotations=True)):
        assert type(family).reopen(family.settings, NOWHERE).settings == family.settings


def test_a_source_that_is_not_ours_is_named():
    settings = {"images": {"source": "Celeba"}, "size": 32, "order": "random"}
    with pytest.raises(CaviaError, match="source 'Celeba' cannot be found again; did you mean 'CelebA'"):
        Completion.reopen(settings, NOWHERE)


def test_other_pictures_than_in_training_are_refused(tmp_path):
    write_miniimagenet(tmp_path)
    settings = Episodes(MINI_IMAGENET.open(tmp_path, size=20), 2, 1, 1).settings
    more = settings | {"images": settings["images"] | {"train": 64}}
    with pytest.raises(CaviaError, match="was trained on other tasks") as error:
        Episodes.reopen(more, tmp_path)
    assert "\n" not in str(error.value)
