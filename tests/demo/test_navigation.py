"""Paths before and after each update, by the library's own episodes."""

import pytest
import torch

from cavia.envs.navigation import Navigation
from cavia.envs.rollouts import collect
from cavia.learners.acting import actor, adapt_in
from cavia.published.models import published
from cavia.tasks.batch import seeded_generator
from cavia.tools.opening import open_policy

GOAL = [0.25, -0.4]


def walked(goal, updates, seed):
    """Returns of the likeliest path after each update, and the last such path's places."""
    learner, env, rollouts, how = open_policy(published()["navigation"].folder)
    generator, task = seeded_generator(seed, "demo"), torch.tensor([goal])
    returns = []
    for stage in adapt_in(learner, env, task, rollouts, updates, generator, how):
        likeliest = collect(Navigation(env.horizon), task, actor(learner, stage.adapted, generator, True), 1, generator)
        returns.append(likeliest.returns.item())
    return returns, likeliest.observations[0, 0][likeliest.mask[0, 0]]


@pytest.mark.slow
def test_paths_are_the_librarys(client):
    stages = client.post("/api/navigation", json={"goal": GOAL, "updates": 2, "seed": 5}).json()["stages"]
    returns, path = walked(GOAL, 2, 5)
    assert [stage["return"] for stage in stages] == pytest.approx(returns, rel=1e-3, abs=0.05)
    assert len(stages[-1]["path"]) == len(path) + 1  # and where it ended
    assert torch.allclose(torch.tensor(stages[-1]["path"][:-1]), path, atol=1e-3)
    for stage in stages:
        assert stage["path"][0] == [0.0, 0.0]
        assert len(stage["context"]) == 5


@pytest.mark.slow
def test_updates_lead_to_the_goal(client):
    gained = []
    for goal in ([0.4, 0.4], [-0.4, 0.3], [0.3, -0.4], [-0.4, -0.4]):
        stages = client.post("/api/navigation", json={"goal": goal, "updates": 1}).json()["stages"]
        gained.append(stages[1]["return"] - stages[0]["return"])
    assert sum(gained) / len(gained) > 10


@pytest.mark.parametrize("asked", [{"goal": [0.6, 0]}, {"goal": [0]}, {"goal": [0, 0], "updates": 4}, {"updates": 1}])
def test_misuse_is_one_line(client, asked):
    answer = client.post("/api/navigation", json=asked)
    assert answer.status_code == 422
    assert "\n" not in answer.json()["detail"]


@pytest.mark.slow
def test_a_click_sets_the_goal_and_the_page_shows_the_librarys_returns(page):
    status = page.locator("#navigation .status")
    status.filter(has_text="Goal (0.30, 0.35)").wait_for()
    field = page.locator("#navigation [data-part=map] svg")
    field.focus()
    for key in ("ArrowRight", "Shift+ArrowDown"):
        page.keyboard.press(key)
    status.filter(has_text="Goal (0.35, 0.25)").wait_for()
    returns = ", ".join(f"{value:.1f}".replace("-", "−") for value in walked([0.35, 0.25], 2, 0)[0])
    assert f"after 0 … 2 updates: {returns} (0 is best)" in status.text_content()
    page.locator("#navigation [data-part=updates]").fill("1")
    assert page.locator("#navigation .plot path.way").count() == 2
    box = field.bounding_box()
    field.click(position={"x": 0.3 * box["width"], "y": 0.3 * box["height"]})
    status.filter(has_not_text="Goal (0.35, 0.25)").wait_for()
