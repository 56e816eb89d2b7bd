"""Training through the public surface: progress, validation, checkpoints, resuming, stopping."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import cavia
from cavia.training.progress import Progress


def make(method="CAVIA", hidden=(8,), **arguments):
    torch.manual_seed(0)
    return getattr(cavia, method)(cavia.MLP(1, 1, hidden=hidden, context=2), "mse", **arguments)


def train(learner, iterations, run_dir=None, **changes):
    settings = {"every": 10, "tasks_per_batch": 4, "validation_tasks": 20, "progress": False, "compile": False}
    return cavia.fit(learner, cavia.Sine(), iterations, run_dir=run_dir, tensorboard=False, **settings | changes)


def weights(learner):
    return {name: value.clone() for name, value in learner.state_dict().items()}


def lines(folder):
    found = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_training_lowers_the_error():
    learner = make(hidden=(40, 40))
    before = cavia.evaluate(learner, cavia.Sine(), tasks=100).mean[1]
    train(learner, 400, every=100, tasks_per_batch=25)
    after = cavia.evaluate(learner, cavia.Sine(), tasks=100).mean[1]
    assert after < 0.6 * before


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    results = []
    for seed in (0, 0, 1):
        learner = make()
        train(learner, 12, seed=seed)
        results.append(weights(learner))
    assert_same(results[0], results[1])
    assert not torch.equal(results[0]["model.layers.0.weight"], results[2]["model.layers.0.weight"])


def test_adam_equals_torch_optim():
    ours, theirs = make(), make()
    train(ours, 15, validation_tasks=0, clip=0.5)
    optimiser = torch.optim.Adam(theirs.parameters(), lr=1e-3)
    generator = cavia.tasks.batch.seeded_generator(0, "train")
    for _ in range(15):
        optimiser.zero_grad()
        theirs.task_losses(cavia.Sine().sample(4, 10, 10, generator)).mean().backward()
        torch.nn.utils.clip_grad_value_(theirs.parameters(), 0.5)
        optimiser.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_the_learner_ends_with_the_model_that_validated_best():
    learner = make()
    result = train(learner, 60, lr=0.3)  # so large that it gets worse again
    scores = []
    other = make()

    def note(progress: Progress):
        if progress.score is not None:
            scores.append(progress.score)

    train(other, 60, lr=0.3, progress=note)
    assert result.best_score <= min(scores)
    found = cavia.evaluate(learner, cavia.Sine(), tasks=20, query=10, split="val").mean[1]
    assert found.item() == pytest.approx(result.best_score)


def test_metrics_have_a_line_at_each_interval(tmp_path):
    train(make(), 25, tmp_path)
    found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in found] == [10, 20, 25]
    assert all({"loss", "validation", "seconds", "lr"} <= line.keys() for line in found)
    assert sorted(line["seconds"] for line in found) == [line["seconds"] for line in found]


@pytest.fixture
def hears_ctrl_c():
    """Tests started in the background of a script inherit that SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("stop_at", [7, 20])
def test_a_stopped_run_goes_on_to_the_bit(tmp_path, stop_at, monkeypatch):
    whole = make()
    train(whole, 30, tmp_path / "whole")
    sampled = []
    sample = cavia.Sine.sample

    def interrupt(self, tasks, support, query, generator, split="train"):
        sampled.append(split)
        if split == "train" and sampled.count("train") == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return sample(self, tasks, support, query, generator, split)

    part = make()
    with monkeypatch.context() as patch:
        patch.setattr(cavia.Sine, "sample", interrupt)
        with pytest.raises(cavia.Interrupted, match=f"stopped at iteration {stop_at} of 30; run the same again"):
            train(part, 30, tmp_path / "part")
    resumed = make()
    train(resumed, 30, tmp_path / "part")
    assert_same(weights(whole), weights(resumed))
    assert lines(tmp_path / "whole") == lines(tmp_path / "part")


def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path):
    whole, part = make(), make()
    train(whole, 30, tmp_path / "whole")
    train(part, 20, tmp_path / "part")
    resumed = make()
    train(resumed, 30, tmp_path / "part")
    assert_same(weights(whole), weights(resumed))


def test_a_shorter_run_in_the_folder_of_a_longer_one_is_refused(tmp_path):
    train(make(), 20, tmp_path)
    with pytest.raises(cavia.CaviaError, match="iterations is 20 there and 10 here"):
        train(make(), 10, tmp_path)


def test_the_loss_of_a_lengthened_run_is_the_mean_over_its_iterations(tmp_path):
    train(make(), 7, tmp_path, validation_tasks=0)
    train(make(), 10, tmp_path, validation_tasks=0)
    train(make(), 10, tmp_path / "whole", every=1, validation_tasks=0)
    each = [line["loss"] for line in lines(tmp_path / "whole")]
    found = {line["iteration"]: line["loss"] for line in lines(tmp_path)}
    assert found[7] == pytest.approx(sum(each[:7]) / 7)
    assert found[10] == pytest.approx(sum(each[7:]) / 3)


def test_a_first_step_that_fails_leaves_the_folder_free(tmp_path):
    class Wrong(cavia.Sine):
        def sample(self, *arguments, **named):
            raise cavia.CaviaError("no data today")

    with pytest.raises(cavia.CaviaError, match="no data today"):
        cavia.fit(make(), Wrong(), 5, run_dir=tmp_path, progress=False)
    train(make(), 5, tmp_path, seed=3)


def test_several_numbers_of_support_points_are_drawn_in_turn():
    seen = []

    class Watched(cavia.Sine):
        def sample(self, tasks, support, query, generator, split="train"):
            seen.append((split, support))
            return super().sample(tasks, support, query, generator, split)

    cavia.fit(make(), Watched(), 30, support=(3, 5), every=30, progress=False, validation_tasks=4)
    assert {support for split, support in seen if split == "train"} == {3, 5}
    assert sorted(support for split, support in seen if split == "val") == [3, 5]


def test_a_finished_run_is_not_trained_again(tmp_path):
    train(make(), 20, tmp_path)
    stamp = (tmp_path / "checkpoint.safetensors").stat().st_mtime_ns
    learner = make()
    result = train(learner, 20, tmp_path)
    assert result.iterations == 20
    assert (tmp_path / "checkpoint.safetensors").stat().st_mtime_ns == stamp


KILLED = """
import sys, torch, cavia, cavia.tensor_file as files, os
torch.set_num_threads(1)
count = 0
real = files.os.fsync
def die(descriptor):
    global count
    count += 1
    if count == 4:          # config, checkpoint 10, checkpoint 20, then in the middle of checkpoint 30
        os.kill(os.getpid(), 9)
    real(descriptor)
files.os.fsync = die
torch.manual_seed(0)
learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), "mse")
cavia.fit(learner, cavia.Sine(), 40, run_dir=sys.argv[1], every=10, tasks_per_batch=4, validation_tasks=20,
          progress=False, compile=False, tensorboard=False)
"""


def test_a_run_killed_in_the_middle_of_a_write_goes_on_to_the_bit(tmp_path):
    whole = make()
    train(whole, 40, tmp_path / "whole")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "killed")], timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 40, "lo')  # and its last line was cut
    resumed = make()
    train(resumed, 40, tmp_path / "killed")
    assert_same(weights(whole), weights(resumed))
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    train(make(), 10, tmp_path)
    with pytest.raises(cavia.CaviaError, match=r"inner_lr is 1\.0 there and 0\.5 here"):
        train(make(inner_lr=0.5), 10, tmp_path)
    with pytest.raises(cavia.CaviaError, match="seed is 0 there and 3 here"):
        train(make(), 10, tmp_path, seed=3)


def test_a_folder_in_use_is_refused(tmp_path):
    def intrude(progress: Progress):
        with pytest.raises(cavia.CaviaError, match="another process is at work"):
            train(make(), 10, tmp_path)

    train(make(), 10, tmp_path, progress=intrude)


@pytest.mark.parametrize("damage", ["truncated", "tampered", "foreign"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    train(make(), 10, tmp_path)
    checkpoint = tmp_path / "checkpoint.safetensors"
    content = checkpoint.read_bytes()
    changed = {
        "truncated": content[:-40],
        "tampered": content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
        "foreign": b"not a checkpoint at all",
    }
    checkpoint.write_bytes(changed[damage])
    with pytest.raises(cavia.CaviaError, match=r"checkpoint\.safetensors"):
        train(make(), 20, tmp_path)


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_last_good_checkpoint(tmp_path):
    class Broken(cavia.Sine):
        calls = 0

        def sample(self, *arguments, **named):
            batch = super().sample(*arguments, **named)
            Broken.calls += len(arguments) == 4
            return batch if Broken.calls <= 14 else cavia.TaskBatch(*[batch.support_x * float("inf")] * 4)

    learner = make("MAML", inner_lr=0.25)
    settings = {"every": 10, "tasks_per_batch": 4, "validation_tasks": 0, "progress": False, "tensorboard": False}
    with pytest.raises(cavia.Diverged, match=r"MAML with inner_lr 0\.25: the loss is nan at iteration 15"):
        cavia.fit(learner, Broken(), 30, run_dir=tmp_path, **settings)
    tensors, description = cavia.tensor_file.read_tensors(tmp_path / "checkpoint.safetensors")
    assert description["iteration"] == 10
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_the_learning_rate_decays():
    changed = []
    learner, other = make(), make()
    train(learner, 20, lr_decay=0.5, lr_decay_every=5)
    train(other, 20)
    for a, b in zip(learner.parameters(), other.parameters(), strict=True):
        changed.append(not torch.equal(a, b))
    assert all(changed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks_per_batch": 0}, "tasks_per_batch must be at least 1, got 0"),
        ({"lr": -1.0}, "lr must be above 0"),
        ({"every": 0}, "every must be at least 1"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"compile": "yes"}, 'compile must be True, False or "auto"'),
        ({"support": 0}, "support must be at least 1"),
        ({"support": ()}, "support must name at least one number"),
        ({"seed": 1.0}, "seed must be a whole number"),
        ({"lr": "fast"}, "lr must be a number"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(cavia.CaviaError, match=message):
        train(make(), 10, **changes)


def test_a_run_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(cavia.CaviaError, match=r"cannot write .*: Not a directory"):
        train(make(), 10, tmp_path / "file" / "run")


def test_no_space_leaves_nothing_half_written(tmp_path, monkeypatch):
    train(make(), 10, tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cavia.tensor_file.os.fsync", full)
    with pytest.raises(cavia.CaviaError, match="No space left on device"):
        train(make(), 20, tmp_path)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".checkpoint")]


def test_failed_compilation_falls_back_and_says_why(monkeypatch):
    def broken(function, **options):
        def fail(*arguments):
            raise RuntimeError("no C++ compiler found\nand more")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    monkeypatch.setattr("cavia.training.fit.WORTH_COMPILING", 10)
    learner, other = make(), make()
    with pytest.warns(UserWarning, match="runs uncompiled: no C"):
        train(learner, 10, compile="auto")
    train(other, 10, compile=False)
    assert_same(weights(learner), weights(other))
    with pytest.raises(RuntimeError, match=r"no C\+\+ compiler"):
        train(make(), 10, compile=True)


def test_plain_lines_without_a_terminal(capsys):
    train(make(), 20, progress=True)
    found = capsys.readouterr().err.splitlines()
    assert 1 <= len(found) <= 12
    assert found[-1].startswith("CAVIA on Sine: iteration 20/20  loss ")


def test_tensorboard_events_are_written(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    settings = {"every": 5, "tasks_per_batch": 4, "validation_tasks": 0, "progress": False}
    cavia.fit(make(), cavia.Sine(), 10, run_dir=tmp_path, **settings)
    assert list((tmp_path / "tensorboard").glob("events.*"))
