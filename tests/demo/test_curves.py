"""Clicked points become curves, by the library's own numbers."""

import pytest
import torch

import cavia

POINTS = [(-3.0, 2.0), (0.0, -2.5), (2.5, 3.0)]


def adapted(name, points, steps):
    """The published model's curve, its error at the points, and what adapted."""
    learner = cavia.pretrained(name)
    x, y = (torch.tensor([[[point[axis]] for point in points]]) for axis in (0, 1))
    adapted = learner.adapt(x, y, steps=steps)
    curve = learner.predict(torch.linspace(-5, 5, 121).view(1, -1, 1), adapted).flatten()
    return curve, (learner.predict(x, adapted) - y).square().mean().item(), adapted


def test_answers_are_the_librarys(client):
    asked = {"points": [{"x": x, "y": y} for x, y in POINTS], "steps": 10}
    answer = client.post("/api/curves", json=asked).json()
    assert [model["label"] for model in answer["models"]] == ["CAVIA", "MAML"]
    for name, model in zip(("sine", "sine-maml"), answer["models"], strict=True):
        for steps in (0, 1, 7, 10):
            curve, error, actual = adapted(name, POINTS, steps)
            assert torch.allclose(torch.tensor(model["curves"][steps]), curve, atol=1e-4)
            assert model["errors"][steps] == pytest.approx(error, rel=1e-3, abs=1e-5)
            if name == "sine":
                assert model["contexts"][steps] == pytest.approx(actual.context[0].tolist(), abs=1e-4)


def test_without_points_there_is_only_the_start(client):
    answer = client.post("/api/curves", json={"points": []}).json()
    for model in answer["models"]:
        assert len(model["curves"]) == 1
        assert model["errors"] == [None]


def test_a_drawn_curve_is_the_one_that_its_points_are_from(client):
    task = client.get("/api/curves/task?seed=3").json()
    for x, y in task["points"]:
        assert y == pytest.approx(task["amplitude"] * torch.tensor(x - task["phase"]).sin().item(), abs=1e-4)
    assert task == client.get("/api/curves/task?seed=3").json()
    assert task != client.get("/api/curves/task?seed=4").json()


@pytest.mark.slow
def test_clicks_place_points_and_the_page_shows_the_librarys_numbers(page):
    plot, legend = page.locator("#curves [data-part=plot] svg"), page.locator("#curves .legend b")
    page.locator("#curves [data-part=legend] b").first.wait_for()
    page.locator("#curves [data-part=clear]").click()
    box = plot.bounding_box()
    for x, y in POINTS:
        across = 44 + (x + 5) / 10 * (box["width"] - 56)
        down = 10 + (6 - y) / 12 * (box["height"] - 48)
        plot.click(position={"x": across, "y": down})
    status = page.locator("#curves .status")
    status.filter(has_text="3 points").wait_for()
    marks = page.locator("#curves .mark")
    assert marks.count() == 3
    for steps in (1, 4):
        page.locator("#curves [data-part=steps]").fill(str(steps))
        expected = [adapted(name, POINTS, steps)[1] for name in ("sine", "sine-maml")]
        actual = [float(text) for text in legend.all_text_contents()]
        assert actual == pytest.approx(expected, abs=0.1, rel=0.1)  # a pixel is 0.02 wide
    context = adapted("sine", POINTS, 4)[2].context[0].tolist()
    bars = page.locator("#curves .bars .value").all_text_contents()
    assert [float(text.replace("−", "-")) for text in bars] == pytest.approx(context, abs=0.1)
    page.locator("#curves [data-part=undo]").click()
    status.filter(has_text="2 points").wait_for()
    page.locator("#curves .handle").first.click()
    status.filter(has_text="1 point,").wait_for()


@pytest.mark.slow
def test_the_keyboard_places_points_to_the_librarys_digits(page):
    page.locator("#curves [data-part=legend] b").first.wait_for()
    page.locator("#curves [data-part=clear]").click()
    page.locator("#curves [data-part=plot] svg").focus()
    for key in ("Shift+ArrowRight", "ArrowUp", "ArrowUp", "Enter", "Shift+ArrowLeft", "Shift+ArrowLeft", "Enter"):
        page.keyboard.press(key)
    page.locator("#curves .status").filter(has_text="2 points").wait_for()
    points = [(1.0, 0.5), (-1.0, 0.5)]
    expected = [f"{adapted(name, points, 1)[1]:.3f}" for name in ("sine", "sine-maml")]
    assert page.locator("#curves .legend b").all_text_contents() == expected
    page.keyboard.press("Backspace")
    page.locator("#curves .status").filter(has_text="1 point,").wait_for()
