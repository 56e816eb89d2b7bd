"""Moving pictures of policies, from the command line and from Python."""

import io

import pytest
import torch
from PIL import Image

import cavia.tools.watch
from cavia.cli import main
from cavia.tools.opening import open_policy
from cavia.tools.watch import Watched
from tests.training.runs import fit

RUN = {"tasks_per_batch": 2, "support": 2, "every": 1, "validation_tasks": 2, "progress": False}


def train(env, folder):
    """A policy that was trained for a moment, as an experiment leaves it."""
    torch.manual_seed(0)
    policy = cavia.GaussianPolicy(env.observations, env.actions, hidden=(8,), context=3)
    learner = cavia.CAVIA(policy, policy.loss, inner_lr=1.0)
    fit(learner, env, 1, folder, **RUN)
    return folder


@pytest.fixture(scope="module")
def navigation(tmp_path_factory):
    return train(cavia.envs.Navigation(horizon=6), tmp_path_factory.mktemp("navigation"))


def test_evaluate_scores_a_policy(navigation, capsys):
    assert main(["evaluate", str(navigation), "--tasks", "3", "--steps", "2"]) == 0
    assert "return after 2 steps" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "size"), [("way.gif", (480, 240 + 26)), ("way.png", (4 * 240, 2 * (2 * 240 + 26)))])
def test_watch_navigation(navigation, tmp_path, capsys, name, size):
    assert main(["watch", str(navigation), "--updates", "1", "--task", "3", "--out", str(tmp_path / name)]) == 0
    assert "return after 0 … 1 updates, mean actions: " in capsys.readouterr().out
    with Image.open(tmp_path / name) as picture:
        assert picture.size == size
        assert getattr(picture, "n_frames", 1) == (1 if name.endswith("png") else 6)


def test_every_episode_has_a_caption(navigation):
    with Image.open(io.BytesIO(Watched(navigation, 0, 1).picture("png"))) as picture:
        above = [picture.convert("L").crop((0, top, 240, top + 26)).getextrema()[0] for top in (0, 2 * 240 + 26)]
    assert max(above) < 100  # dark letters on white


def test_a_policy_is_opened_with_its_environment(navigation):
    for path in (navigation, navigation / "model.cavia"):
        learner, env, rollouts, updates = open_policy(path)
        assert (type(env).__name__, env.horizon, learner.inner_lr) == ("Navigation", 6, 1.0)
        assert (rollouts, updates.later_rate) == (2, 0.5)


def test_the_same_task_is_watched_again(navigation):
    one, again, other = (Watched(navigation, task, 1) for task in (0, 0, 1))
    assert torch.equal(one.task, again.task)
    assert one.returns == again.returns
    assert len(one.frames) == 2
    assert not torch.equal(one.task, other.task)


def test_watch_the_cheetah_without_opengl(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mujoco", reason='needs pip install "cavia-torch[rl]"')
    pytest.importorskip("gymnasium", reason='needs pip install "cavia-torch[rl]"')
    folder = train(cavia.envs.CheetahDirection(horizon=6), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    order = ["watch", str(folder), "--updates", "1", "--out", str(tmp_path / "cheetah.gif")]

    monkeypatch.setattr(cavia.tools.watch, "opengl_problem", lambda: "no driver")
    assert main(order) == 0
    assert "no off-screen OpenGL here (no driver): limbs drawn as lines" in capsys.readouterr().out
    with Image.open(tmp_path / "cheetah.gif") as picture:
        assert picture.size == (480, 2 * (240 + 26))
        picture.seek(1)
    with Image.open(io.BytesIO(Watched(folder, 0, 1).picture("png"))) as picture:
        assert picture.size == (4 * 240, 2 * (2 * 180 + 26))  # frames without the empty sides
    pictures = Watched(folder, 0, 0).frames[0]
    assert min(frame.min() for frame in pictures) < 60  # there is a cheetah in every one of them


def test_a_driver_that_aborts_is_a_reason(monkeypatch):
    pytest.importorskip("mujoco", reason='needs pip install "cavia-torch[rl]"')
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    cavia.tools.watch.opengl_problem.cache_clear()
    assert cavia.tools.watch.opengl_problem()
    cavia.tools.watch.opengl_problem.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no trained model nowhere"),
        (["{cell}", "--out", "way.mp4"], "--out must be a .gif or a .png, got way.mp4"),
        (["{cell}", "--task", "-1"], "task must be at least 0, got -1"),
        (["{cell}", "--updates", "-1"], "updates must be at least 0, got -1"),
    ],
)
def test_misuse_of_watch_is_one_line(navigation, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["watch", *(text.format(cell=navigation) for text in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_only_policies_can_be_watched(tmp_path, capsys):
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=1), "mse")
    cavia.fit(learner, cavia.Sine(), 1, run_dir=tmp_path, progress=False, validation=cavia.Validation(0))
    learner.save(tmp_path / "model.cavia")
    assert main(["watch", str(tmp_path)]) == 2
    assert "is not the run of a policy" in capsys.readouterr().err


def test_an_environment_that_is_not_ours_is_named(navigation, tmp_path, capsys):
    for name in ("config.json", "model.cavia"):
        text = (navigation / name).read_bytes().replace(b'"Navigation"', b'"Navigator"')
        (tmp_path / name).write_bytes(text)
    assert main(["watch", str(tmp_path)]) == 2
    assert "needs Navigator, which is not imported; did you mean 'Navigation'?" in capsys.readouterr().err


def test_gif_frames_are_encoded_in_order():
    frames = [torch.full((4, 4, 3), value, dtype=torch.uint8).numpy() for value in (0, 120, 250)]
    content = cavia.tools.watch._encoded(frames, "GIF")
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.n_frames == 3
