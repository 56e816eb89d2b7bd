"""`cavia complete`: a user's own picture, from Python and from the command line."""

import numpy as np
import pytest
import torch
from PIL import Image

import cavia
from cavia.cli import main
from cavia.pictures.complete import DARK_GREY, complete

SIZE, WIDTH = 8, 24


@pytest.fixture(scope="module")
def learner():
    """Trained for a moment on pictures of one colour each."""
    colours = np.random.default_rng(0).integers(0, 256, (40, 1, 1, 3), dtype=np.uint8)
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(2, 3, hidden=(24, 24), context=8), "mse", inner_lr=1.0, inner_steps=3)
    plain = cavia.Completion(np.broadcast_to(colours, (40, SIZE, SIZE, 3)), SIZE)
    cavia.fit(learner, plain, 200, tasks_per_batch=8, query=16, outer=cavia.Adam(lr=5e-3),
              validation=cavia.Validation(0), progress=False)  # fmt: skip
    return learner


@pytest.fixture
def picture(tmp_path):
    """Left half red, right half blue, larger than the network sees it."""
    pixels = np.zeros((32, 40, 3), np.uint8)
    pixels[:, :20] = (200, 20, 20)
    pixels[:, 20:] = (20, 20, 200)
    path = tmp_path / "picture.png"
    Image.fromarray(pixels).save(path)
    return path


def test_panels_have_the_width_asked_for_and_show_the_picture(learner, picture):
    completed = complete(learner, picture, known=10, size=SIZE, width=WIDTH)
    for panel in completed[:3]:
        assert panel.shape == (WIDTH, WIDTH, 3)
        assert panel.min() >= 0
        assert panel.max() <= 1
    torch.testing.assert_close(completed.original[0, 0], torch.tensor([200, 20, 20]) / 255)
    torch.testing.assert_close(completed.original[-1, -1], torch.tensor([20, 20, 200]) / 255)
    is_unknown = (completed.known == DARK_GREY).all(-1)
    assert is_unknown.sum() == (SIZE**2 - 10) * (WIDTH // SIZE) ** 2
    assert torch.equal(completed.known[~is_unknown], completed.original[~is_unknown])


def test_a_picture_of_one_colour_is_completed_from_few_pixels(learner, tmp_path):
    for colour in ((220, 60, 60), (40, 70, 200)):
        Image.new("RGB", (50, 30), colour).save(tmp_path / "plain.jpg")
        completed = complete(learner, tmp_path / "plain.jpg", known=5, size=SIZE, width=WIDTH)
        assert completed.mse < 0.01
        torch.testing.assert_close(completed.completion.mean((0, 1)), torch.tensor(colour) / 255, atol=0.1, rtol=0)


def test_at_its_own_size_the_completion_has_the_error_that_is_reported(learner, tmp_path):
    greys = np.random.default_rng(0).integers(100, 156, (SIZE, SIZE, 3), dtype=np.uint8)  # far from being clamped
    Image.fromarray(greys).save(tmp_path / "greys.png")
    completed = complete(learner, tmp_path / "greys.png", known=SIZE**2, size=SIZE, width=SIZE)
    assert torch.equal(completed.known, completed.original)
    torch.testing.assert_close(completed.mse, (completed.completion - completed.original).square().mean())


def test_the_seed_chooses_the_random_pixels_and_ordered_ones_come_first(learner, picture):
    first, again, other = (complete(learner, picture, 10, SIZE, WIDTH, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.known, other.known)
    ordered = complete(learner, picture, 2 * SIZE, SIZE, WIDTH, ordered=True)
    top = 2 * WIDTH // SIZE
    assert torch.equal(ordered.known[:top], ordered.original[:top])
    assert (ordered.known[top:] == DARK_GREY).all()


@pytest.mark.parametrize("method", ["MAML", "CNP"])
def test_every_learner_of_pictures_will_do(picture, method):
    model = cavia.MLP(2, 3, hidden=(6,), context=4)
    learner = cavia.CNP(model, "mse", 2, 3) if method == "CNP" else cavia.MAML(model, "mse")
    assert complete(learner, picture, known=5, size=SIZE, width=WIDTH).completion.shape == (WIDTH, WIDTH, 3)


# From the command line


@pytest.fixture
def model(learner, tmp_path):
    (tmp_path / "cell").mkdir()
    learner.save(tmp_path / "cell" / "model.cavia")
    return tmp_path / "cell"


@pytest.mark.parametrize("name", ["", "model.cavia"])
def test_the_command_writes_three_panels_and_says_so(model, picture, tmp_path, capsys, name):
    out = tmp_path / "new" / "out.png"
    options = ["--known", "10", "--size", str(SIZE), "--width", str(WIDTH), "--out", str(out)]
    assert main(["complete", str(model / name), str(picture), *options]) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert "pixel MSE 0." in shown
    assert str(out) in shown
    with Image.open(out) as written:
        assert written.format == "PNG"
        pixels = torch.from_numpy(np.array(written)) / 255
    expected = complete(cavia.load(model / "model.cavia"), picture, 10, SIZE, WIDTH)
    torch.testing.assert_close(pixels, torch.cat(expected[:3], 1), atol=0.003, rtol=0)
    assert [path.name for path in out.parent.iterdir()] == ["out.png"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--known", "1025"], "known must be at most 1024, the pixels of a 32×32 picture, got 1025"),
        (["--known", "0"], "must be a whole number of at least 1, got '0'"),
        (["--size", "1"], "size must be at least 2, got 1"),
        (["--width", "16"], "width must be from 32, the size, to 4096, got 16"),
        (["--width", "100000"], "--width must be at most 4096, got 100000"),
        (["--knwon", "5"], "did you mean '--known'?"),
        (["--out", "out.jpg"], "--out must be a .png and not the picture itself, got out.jpg"),
        (["--out", "picture.png"], "--out must be a .png and not the picture itself, got picture.png"),
        (["--out", "file/out.png"], "cannot write file/out.png"),
        (["--out", "folder.png"], "cannot write folder.png: Is a directory"),
    ],
)
def test_misuse_is_one_line_and_writes_nothing(model, picture, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert main(["complete", "cell", "picture.png", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_no_picture_is_one_line(model, picture, tmp_path, capsys):
    (tmp_path / "half.png").write_bytes(picture.read_bytes()[:60])
    (tmp_path / "text.jpg").write_text("no picture")
    for name, message in (
        ("nowhere.png", "No such file"),
        ("cell", "Is a directory"),
        ("half.png", "half.png is damaged, or no picture"),
        ("text.jpg", "text.jpg is damaged, or no picture"),
    ):
        assert main(["complete", str(model), str(tmp_path / name), "--out", str(tmp_path / "out.png")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert not (tmp_path / "out.png").exists()


def test_models_that_are_missing_damaged_or_not_for_pictures_are_one_line(picture, tmp_path, capsys):
    cavia.CAVIA(cavia.MLP(1, 1), "mse").save(tmp_path / "sine.cavia")
    (tmp_path / "bad.cavia").write_bytes(b"no model")
    (tmp_path / "run" / "cells").mkdir(parents=True)
    for name, message in (
        ("sine.cavia", "not for pictures: it takes 1 inputs and gives 1 outputs"),
        ("bad.cavia", "bad.cavia is damaged or not a cavia file"),
        ("nowhere", "there is no trained model"),
        ("run", "an experiment's models are in"),
    ):
        assert main(["complete", str(tmp_path / name), str(picture), "--out", str(tmp_path / "out.png")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
