"""Run folders: going on to the bit after any end, and what is refused."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

import cavia
from cavia.tensor_file import read_tensors
from cavia.training.progress import Progress
from cavia.training.step import MetaStep
from tests.training.runs import assert_same, fit, lines, make, train, weights


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
    steps = []
    take = MetaStep.__call__

    def interrupt(self, batch):
        steps.append(batch)
        if len(steps) == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return take(self, batch)

    part = make()
    with monkeypatch.context() as patch:
        patch.setattr(MetaStep, "__call__", interrupt)
        with pytest.raises(cavia.Interrupted, match=f"stopped at iteration {stop_at} of 30; run the same again"):
            train(part, 30, tmp_path / "part")
    resumed = make()
    train(resumed, 30, tmp_path / "part")
    assert_same(weights(whole), weights(resumed))
    assert lines(tmp_path / "whole") == lines(tmp_path / "part")


def test_dropout_goes_on_to_the_bit_and_leaves_the_callers_random_numbers_alone(tmp_path):
    def dropping():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
        return cavia.CAVIA(cavia.condition(network, at="0", context=2, example=torch.zeros(1, 1)), "mse", inner_lr=0.1)

    whole, part = dropping(), dropping()
    before = torch.get_rng_state()
    train(whole, 20, tmp_path / "whole")
    assert torch.equal(torch.get_rng_state(), before)
    train(part, 10, tmp_path / "part")
    torch.rand(3)  # of somebody else
    train(part, 20, tmp_path / "part")
    assert_same(weights(whole), weights(part))


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
    by_name = {line["iteration"]: line["loss"] for line in lines(tmp_path)}
    assert by_name[7] == pytest.approx(sum(each[:7]) / 7)
    assert by_name[10] == pytest.approx(sum(each[7:]) / 3)


def test_a_first_step_that_fails_leaves_the_folder_free(tmp_path):
    class Wrong(cavia.Sine):
        def sample(self, *arguments, **named):
            raise cavia.CaviaError("no data today")

    with pytest.raises(cavia.CaviaError, match="no data today"):
        cavia.fit(make(), Wrong(), 5, run_dir=tmp_path, progress=False)
    train(make(), 5, tmp_path, seed=3)


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
cavia.fit(learner, cavia.Sine(), 40, run_dir=cavia.RunFolder(sys.argv[1], events=False), tasks_per_batch=4,
          validation=cavia.Validation(20, every=10), progress=False, outer=cavia.Adam(compile=False))
"""


@pytest.mark.slow
def test_a_run_killed_in_the_middle_of_a_write_goes_on_to_the_bit(tmp_path):
    whole = make()
    train(whole, 40, tmp_path / "whole")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "killed")], timeout=600, check=False)
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


def cooled(folder, iterations):
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(6,), context=2), "mse")
    with torch.no_grad():
        for value in learner.parameters():
            value.fill_(0.1)
    fit(
        learner, cavia.Sine(), iterations, tasks_per_batch=3, cooldown=0.5, every=7, validation_tasks=0,
        run_dir=folder, progress=False,
    )  # fmt: skip
    return learner


@pytest.mark.slow
def test_a_longer_run_goes_on_from_before_its_cooldown(tmp_path):
    cooled(tmp_path / "grown", 20)
    assert (tmp_path / "grown" / "before-cooldown.safetensors").exists()
    grown, whole = cooled(tmp_path / "grown", 40), cooled(tmp_path / "whole", 40)
    for ours, theirs in zip(grown.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    kept, _ = read_tensors(tmp_path / "grown" / "before-cooldown.safetensors")
    expected, _ = read_tensors(tmp_path / "whole" / "before-cooldown.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in expected.items())
    lines_of_both = [lines(tmp_path / name) for name in ("grown", "whole")]
    assert [line["iteration"] for line in lines_of_both[0]] == [line["iteration"] for line in lines_of_both[1]]


def test_a_checkpoint_is_never_many_minutes_old(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("cavia.training.run.CHECKPOINT_AFTER", 0.0)
    save = cavia.training.checkpoint.RunFolder.save
    monkeypatch.setattr(
        "cavia.training.checkpoint.RunFolder.save",
        lambda self, state, groups: (written.append(state.iteration), save(self, state, groups)),
    )
    cooled(tmp_path, 6)
    assert set(written) == {1, 2, 3, 4, 5, 6}
