"""Training through the public surface: learning, validation, metrics, failures."""

import json

import pytest
import torch

import cavia
from cavia.tasks.batch import seeded_generator
from cavia.tensor_file import read_tensors
from cavia.training.progress import Progress
from tests.training.runs import assert_same, fit, make, train, weights


@pytest.mark.slow
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
    block = cavia.Sine().sample(100 * 4, 10, 10, seeded_generator(0, "train"))  # as many batches as are drawn at once
    for start in range(0, 15 * 4, 4):
        optimiser.zero_grad()
        theirs.task_losses(block.part(start, start + 4)).mean().backward()
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
    scored = cavia.evaluate(learner, cavia.Sine(), tasks=20, query=10, split="val").mean[1]
    assert scored.item() == pytest.approx(result.best_score)


def test_metrics_have_a_line_at_each_interval(tmp_path):
    train(make(), 25, tmp_path)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in records] == [10, 20, 25]
    assert all({"loss", "validation", "seconds", "lr"} <= line.keys() for line in records)
    assert sorted(line["seconds"] for line in records) == [line["seconds"] for line in records]


def test_several_numbers_of_support_points_are_drawn_in_turn():
    seen = []

    class Watched(cavia.Sine):
        def sample(self, tasks, support, query, generator, split="train"):
            seen.append((split, support))
            return super().sample(tasks, support, query, generator, split)

    fit(make(), Watched(), 30, support=(3, 5), every=30, progress=False, validation_tasks=4)
    assert {support for split, support in seen if split == "train"} == {3, 5}
    assert sorted(support for split, support in seen if split == "val") == [3, 5]


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_last_good_checkpoint(tmp_path):
    class Broken(cavia.Sine):
        calls = 0

        def sample(self, *arguments, **named):
            batch = super().sample(*arguments, **named)
            Broken.calls += len(arguments) == 4
            return batch if Broken.calls <= 14 else cavia.TaskBatch(*[batch.support_x * float("inf")] * 4)

    learner = make("MAML", inner_lr=0.25)
    settings = {"every": 10, "tasks_per_batch": 4, "validation_tasks": 0, "progress": False}
    with pytest.raises(cavia.Diverged, match=r"MAML with inner_lr 0\.25: the loss .* is nan at iteration 15"):
        fit(learner, Broken(), 30, run_dir=tmp_path, **settings)
    tensors, description = read_tensors(tmp_path / "checkpoint.safetensors")
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


def test_the_learning_rate_cools_down_over_the_last_share_of_the_run(tmp_path):
    train(make(), 20, lr=0.01, cooldown=0.5, every=1, run_dir=tmp_path)
    rates = [json.loads(line)["lr"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rates == pytest.approx([0.01] * 10 + [0.01 * left / 10 for left in range(10, 0, -1)], rel=1e-6)


def test_a_run_of_some_minutes_ends_in_time_and_goes_on_with_more(tmp_path):
    learner = make()
    ended = train(learner, 1_000_000, minutes=1e-3, run_dir=tmp_path)
    assert 1 <= ended.iterations < 1_000_000
    assert ended.best_score is not None  # the last model was validated, too
    assert train(make(), 1_000_000, minutes=1e-3, run_dir=tmp_path).iterations == ended.iterations
    assert train(make(), 1_000_000, minutes=ended.seconds / 60 + 2e-3, run_dir=tmp_path).iterations > ended.iterations


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"minutes": 0}, "minutes must be above 0"),
        ({"cooldown": 1.5}, "cooldown must be from 0 to 1, got 1.5"),
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


@pytest.mark.slow
def test_failed_compilation_falls_back_and_says_why(monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("no C++ compiler found\nand more")

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", broken)
    monkeypatch.setattr("cavia.training.adam.WORTH_COMPILING", 10)
    learner, other = make(), make()
    with pytest.warns(UserWarning, match="runs uncompiled: no C"):
        train(learner, 10, compile="auto")
    train(other, 10, compile=False)
    assert_same(weights(learner), weights(other))
    with pytest.raises(RuntimeError, match=r"no C\+\+ compiler"):
        train(make(), 10, compile=True)


class OwnNetwork(cavia.MLP):
    """A class whose code `fit` does not know."""


@pytest.mark.parametrize(
    ("network", "loss", "message"),
    [
        (OwnNetwork(1, 1, hidden=(4,), context=2), "mse", "runs uncompiled: OwnNetwork is your own code"),
        (cavia.MLP(1, 1, hidden=(4,), context=2), lambda y, t: (y - t).abs().mean(-1), "the loss is your own code"),
    ],
    ids=["network", "loss"],
)
def test_own_code_is_compiled_only_when_told(network, loss, message, monkeypatch):
    monkeypatch.setattr("cavia.training.adam.WORTH_COMPILING", 10)
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", None)  # not to be called
    with pytest.warns(UserWarning, match=message):
        train(cavia.CAVIA(network, loss), 10, compile="auto")


def test_convolutions_are_not_compiled_by_themselves(monkeypatch):
    monkeypatch.setattr("cavia.training.adam.WORTH_COMPILING", 2)
    compiled = []
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", lambda *graph: compiled.append(graph))
    glyphs = cavia.Episodes(cavia.synthetic_glyphs(4, 4, 4, 4), ways=2, shots=1, queries=1, channels=1)
    learner = cavia.CAVIA(cavia.ConvNet(2, 4, 28, 1, context=2), "cross_entropy")
    fit(learner, glyphs, 2, tasks_per_batch=2, validation_tasks=0, progress=False)
    assert not compiled


def test_plain_lines_without_a_terminal(capsys):
    train(make(), 20, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 12
    assert lines[-1].startswith("CAVIA on Sine: iteration 20/20  loss ")


def test_tensorboard_events_are_written(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    validation = cavia.Validation(tasks=0, every=5)
    cavia.fit(make(), cavia.Sine(), 10, tasks_per_batch=4, validation=validation, progress=False, run_dir=tmp_path)
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_inference_mode_is_refused_before_anything_is_done():
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=2), "mse")
    with torch.inference_mode(), pytest.raises(cavia.CaviaError, match=r"inference_mode\(\) .*: call it outside"):
        cavia.fit(learner, cavia.Sine(), iterations=1, progress=False)
