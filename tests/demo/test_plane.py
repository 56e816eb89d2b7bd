"""A place of the plane is a function, the library's own."""

import pytest
import torch

import cavia
from cavia.demo.plane import TASKS


def curve_at(context):
    adapted = cavia.Adapted({"context": torch.tensor([context])})
    return cavia.pretrained("sine-2").predict(torch.linspace(-5, 5, 121).view(1, -1, 1), adapted).flatten()


def test_a_thousand_tasks_lie_in_it(client):
    about = client.get("/api/about").json()["plane"]
    assert len(about["contexts"]) == len(about["amplitude"]) == len(about["phase"]) == TASKS
    for axis, (low, high) in enumerate(about["range"]):
        assert low < min(context[axis] for context in about["contexts"])
        assert high > max(context[axis] for context in about["contexts"])


def test_the_function_and_the_nearest_task_are_the_librarys(client):
    about = client.get("/api/about").json()["plane"]
    answer = client.post("/api/plane", json={"context": [1.0, -0.5]}).json()
    assert torch.allclose(torch.tensor(answer["curve"]), curve_at([1.0, -0.5]), atol=1e-5)
    distances = (torch.tensor(about["contexts"]) - torch.tensor([1.0, -0.5])).norm(dim=1)
    nearest = answer["nearest"]["task"]
    assert nearest == distances.argmin().item()
    assert answer["nearest"]["amplitude"] == about["amplitude"][nearest]


@pytest.mark.parametrize("context", [[1.0], [1.0, 2.0, 3.0], [1.0, 101.0], [None, 1.0], ["0", 1.0], 3])
def test_a_place_has_two_numbers(client, context):
    answer = client.post("/api/plane", json={"context": context})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("context")


@pytest.mark.slow
def test_dragging_changes_the_function(page):
    status, curve = page.locator("#plane .status"), page.locator("#plane .plot .curve.first")
    status.filter(has_text="φ = (0.00, 0.00)").wait_for()
    before = curve.get_attribute("d")
    page.locator("#plane [data-part=map]").scroll_into_view_if_needed()
    box = page.locator("#plane [data-part=map] svg").bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.4 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.3 * box["height"], steps=4)
    page.mouse.up()
    status.filter(has_not_text="φ = (0.00, 0.00)").wait_for()
    assert curve.get_attribute("d") != before
    assert page.locator("#plane circle.task").count() == TASKS


@pytest.mark.slow
def test_tasks_are_coloured_by_amplitude_or_phase(page):
    task = page.locator("#plane circle.task").first
    task.wait_for(state="attached")
    by_amplitude = task.get_attribute("fill")
    page.get_by_role("button", name="Phase").click()
    assert page.locator("#plane circle.task").first.get_attribute("fill") != by_amplitude
    assert "phase p" in page.locator("#plane .scale").text_content()
