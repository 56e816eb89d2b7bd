"""A picture is completed from its known pixels, by the published model or by one's own."""

import base64

import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient

import cavia
from cavia.demo.routes import router
from cavia.pictures.completion import pixel_coordinates

PICTURE = bytes(torch.randint(0, 256, (3072,), generator=torch.Generator().manual_seed(0)).tolist())


@pytest.fixture(scope="module")
def own():
    """A learner of one's own, and the page about it under a prefix, as `cavia serve` has it."""
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(2, 3, (16,), context=4), "mse", inner_lr=0.5, inner_steps=3)
    app = FastAPI()
    app.include_router(router(learner=learner), prefix="/demo")
    with TestClient(app) as client:
        yield learner, client


def completed(learner, known):
    """The completion's error, and the context."""
    colours = torch.tensor(list(PICTURE), dtype=torch.float32).view(1, 1024, 3) / 255
    places = pixel_coordinates(32).unsqueeze(0)
    adapted = learner.adapt(places[:, known], colours[:, known])
    return (learner.predict(places, adapted) - colours).square().mean().item(), adapted.context[0].tolist()


def ask(client, known, picture=PICTURE):
    body = {"picture": base64.b64encode(picture).decode(), "known": known}
    return client.post("/demo/api/faces", json=body)


def test_a_model_of_ones_own_is_shown_in_the_panel_that_fits(own):
    learner, client = own
    assert set(client.get("/demo/api/about").json()) == {"version", "faces"}
    assert client.get("/demo/").status_code == 200
    answer = client.post("/demo/api/curves", json={"points": []})
    assert (answer.status_code, answer.json()["detail"][:32]) == (422, "there is no model for this panel")
    answered, known = ask(client, [5, 80, 900]).json(), [5, 80, 900]
    error, context = completed(learner, known)
    assert answered["mse"] == pytest.approx(error, rel=1e-5)
    assert answered["context"] == pytest.approx(context, abs=1e-6)
    assert len(base64.b64decode(answered["completion"])) == 64 * 64 * 3


def test_nothing_known_is_where_it_starts(own):
    assert ask(own[1], []).json()["context"] == [0.0] * 4


@pytest.mark.parametrize(
    ("known", "picture", "words"),
    [
        ([1024], PICTURE, "known.0: Input should be less than 1024, got 1024"),
        ([-1], PICTURE, "known.0: "),
        (list(range(1024)) * 2, PICTURE, "known: List should have at most 1024 items"),
        ([0], b"too short", "picture must have 3072 bytes, 32 × 32 pixels of 3 colours, got 9"),
    ],
)
def test_misuse_is_one_line(own, known, picture, words):
    answer = ask(own[1], known, picture)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_pictures_are_asked_for_by_source_and_number(own):
    def get(query):
        return own[1].get(f"/demo/api/faces/picture?{query}")

    first = get("source=drawn&number=0").json()["picture"]
    assert len(base64.b64decode(first)) == 3072
    assert first == get("source=drawn&number=64").json()["picture"]  # they go round
    assert first != get("source=imagined&number=0").json()["picture"]
    assert "unknown source 'celeba'" in get("source=celeba&number=0").json()["detail"]
    assert get("source=drawn").status_code == get("source=drawn&number=-1").status_code == 422


def test_text_that_is_no_base64_is_named(own):
    answer = own[1].post("/demo/api/faces", json={"picture": "ü" * 10, "known": []})
    assert "picture must be base64" in answer.json()["detail"]


def test_a_model_that_no_panel_fits_is_refused():
    three = cavia.CAVIA(cavia.MLP(3, 1, context=2), "mse")
    with pytest.raises(cavia.CaviaError, match="the page cannot show this CAVIA: it takes 3 numbers to 1"):
        router(learner=three)


def test_a_data_root_without_faces_is_refused(tmp_path):
    with pytest.raises(cavia.CaviaError, match=r"no CelebA in .*leave out --data-root"):
        router(tmp_path)


@pytest.mark.slow
def test_wiping_reveals_pixels_and_the_page_shows_the_librarys_error(page):
    status = page.locator("#faces .status")
    status.filter(has_text="10 of 1024 pixels known").wait_for()
    imagined = status.text_content()
    page.locator("#faces [data-part=source]").select_option("drawn")
    status.filter(has_text="10 of 1024 pixels known").filter(has_not_text=imagined).wait_for()  # it is there
    page.locator("#faces [data-part=hide]").click()
    status.filter(has_text="Nothing known yet").wait_for()
    page.locator("#faces [data-part=half]").click()
    status.filter(has_text="512 of 1024 pixels known (50 %)").wait_for()
    drawn = page.evaluate("fetch('api/faces/picture?source=drawn&number=0').then(answer => answer.json())")
    colours = torch.tensor(list(base64.b64decode(drawn["picture"])), dtype=torch.float32).view(1, 1024, 3) / 255
    learner, places = cavia.pretrained("completion-10"), pixel_coordinates(32).unsqueeze(0)
    adapted = learner.adapt(places[:, :512], colours[:, :512])
    error = (learner.predict(places, adapted) - colours).square().mean().item()
    assert f"whole picture {error:.4f}" in status.text_content()

    page.locator("#faces [data-part=hide]").click()
    box = page.locator("#faces [data-part=known]").bounding_box()
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.5 * box["height"])  # one quick stroke has no gaps
    page.mouse.up()
    status.filter(has_text="26 of 1024 pixels known").wait_for()


@pytest.mark.slow
def test_a_picture_from_the_disk_and_one_that_is_painted(page, tmp_path):
    from PIL import Image

    Image.new("RGB", (300, 200), (200, 40, 40)).save(tmp_path / "red.png")
    status = page.locator("#faces .status")
    status.filter(has_text="10 of 1024").wait_for()
    imagined = status.text_content()
    with page.expect_file_chooser() as chooser:
        page.locator("#faces [data-part=source]").select_option("file")
    chooser.value.set_files(tmp_path / "red.png")
    middle = (
        "document.querySelector('#faces [data-part=original]').getContext('2d').getImageData(16, 16, 1, 1).data.join()"
    )
    status.filter(has_text="10 of 1024").filter(has_not_text=imagined).wait_for()
    assert page.evaluate(middle) == "200,40,40,255"
    page.locator("#faces [data-part=source]").select_option("empty")
    status.filter(has_text="Nothing known yet").wait_for()
    page.locator("#faces [data-part=brush]").select_option("4")
    page.locator("#faces [data-part=known]").click(position={"x": 60, "y": 60})
    status.filter(has_text="16 of 1024 pixels known").wait_for()
    assert not page.locator("#faces [data-part=original]").is_visible()
