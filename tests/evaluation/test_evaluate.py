import numpy as np
import pytest
import torch

import cavia
from cavia.evaluation.probes import (
    axis_alignment,
    context_gradient_norms,
    contexts,
    linear_r2,
    neighbour_r2,
    plane,
)


def make():
    torch.manual_seed(0)
    return cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), "mse", inner_lr=0.1)


def test_scores_of_every_step_with_mean_and_interval():
    evaluation = cavia.evaluate(make(), cavia.Sine(), tasks=50, steps=3)
    assert evaluation.metric == "mse"
    assert evaluation.scores.shape == (4, 50)
    torch.testing.assert_close(evaluation.mean, evaluation.scores.mean(1))
    torch.testing.assert_close(evaluation.interval, 1.96 * evaluation.scores.std(1) / 50**0.5)
    assert "mse after 3 steps" in str(evaluation)


def test_chunks_do_not_change_the_scores_and_seeds_do():
    learner = make()
    whole = cavia.evaluate(learner, cavia.Sine(), tasks=20).scores
    torch.testing.assert_close(cavia.evaluate(learner, cavia.Sine(), tasks=20, chunk=7).scores, whole)
    assert not torch.equal(cavia.evaluate(learner, cavia.Sine(), tasks=20, seed=1).scores, whole)


def test_classification_is_scored_by_accuracy():
    class Signs(cavia.TaskFamily):
        def sample(self, tasks, support, query, generator, split="train"):
            x = torch.randn(tasks, support + query, 2, generator=generator)
            labels = (x[..., 0] > 0).long()
            return cavia.TaskBatch(x[:, :support], labels[:, :support], x[:, support:], labels[:, support:])

    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(2, 2, context=2), "cross_entropy")
    cavia.fit(learner, Signs(), 60, progress=False, validation=cavia.Validation(every=20))
    evaluation = cavia.evaluate(learner, Signs(), tasks=30)
    assert evaluation.metric == "accuracy"
    assert evaluation.higher_is_better
    assert 0.85 < evaluation.mean[-1] <= 1


def test_bad_arguments_are_named():
    with pytest.raises(cavia.CaviaError, match="steps must be at least 0, got -1"):
        cavia.evaluate(make(), cavia.Sine(), steps=-1)
    with pytest.raises(cavia.CaviaError, match="tasks must be at least 1, got 0"):
        cavia.evaluate(make(), cavia.Sine(), tasks=0)


def test_gradient_norm_is_the_length_of_the_first_step_over_the_rate():
    learner = make()
    batch = cavia.Sine().sample(9, 10, 5, torch.Generator().manual_seed(0))
    moved = contexts(learner, batch, steps=1)
    torch.testing.assert_close(context_gradient_norms(learner, batch), moved.norm(dim=1) / 0.1)


def test_neighbour_r2_tells_smooth_from_unrelated():
    points = torch.rand(500, 2, generator=torch.Generator().manual_seed(0))
    assert neighbour_r2(points, points[:, 0] + points[:, 1] ** 2) > 0.97
    assert neighbour_r2(points, torch.rand(500, generator=torch.Generator().manual_seed(1))) < 0.1


def test_a_plane_of_points_with_one_number_is_a_line():
    points = plane(torch.tensor([[1.0], [2.0], [6.0]]))
    assert points[:, 0].abs().tolist() == [2.0, 1.0, 3.0]
    assert points[:, 1].tolist() == [0.0, 0.0, 0.0]


def test_linear_r2():
    points = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    unrelated = torch.randn(50, generator=torch.Generator().manual_seed(1))
    scores = linear_r2(points, torch.stack([3 * points[:, 0] - points[:, 1] + 2, unrelated], 1))
    assert scores[0] > 0.9999
    assert scores[1] < 0.3


def test_axis_alignment_is_the_correlation_of_each_coordinate_with_each_value():
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    points[:, 2] = 1.0  # never moves
    values = torch.stack([-2 * points[:, 1] + 5, points[:, 0] + points[:, 1]], 1)
    alignment = axis_alignment(points, values)
    expected = np.corrcoef(points[:, 0].numpy(), values[:, 1].numpy())[0, 1]
    assert alignment.shape == (3, 2)
    assert alignment[1, 0].item() == pytest.approx(-1.0)
    assert alignment[0, 1].item() == pytest.approx(expected, abs=1e-6)
    assert alignment[2].tolist() == [0.0, 0.0]
    swapped = axis_alignment(points.flip(1), values)
    torch.testing.assert_close(swapped, alignment.flip(0))


class Signs(cavia.TaskFamily):
    """Points of two classes."""

    def sample(self, tasks, support, query, generator, split="train"):
        x = torch.randn(tasks, support + query, 2, generator=generator)
        labels = (x[..., 0] > 0).long()
        return cavia.TaskBatch(x[:, :support], labels[:, :support], x[:, support:], labels[:, support:])


def smoothed(prediction, target):
    """A user's own loss of logits [T, N, classes] and labels [T, N]."""
    actual = torch.nn.functional.cross_entropy(
        prediction.flatten(0, 1), target.flatten(), reduction="none", label_smoothing=0.1
    )
    return actual.view(target.shape)


def test_any_classification_is_scored_by_accuracy_whatever_its_loss():
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(2, 2, context=2), smoothed)
    evaluation = cavia.evaluate(learner, Signs(), tasks=30)
    assert (evaluation.metric, evaluation.higher_is_better) == ("accuracy", True)
    assert set((evaluation.scores * 100).round(decimals=2).flatten().tolist()) <= set(map(float, range(101)))
    assert cavia.evaluate(learner, Signs(), tasks=5, metric="loss").metric == "loss"


def largest_error(prediction, target):
    return (prediction - target).abs().amax(-1)


def test_a_metric_may_be_named_or_a_function_or_several_at_once():
    learner = make()
    named, own, loss = cavia.evaluate(learner, cavia.Sine(), tasks=6, metric=["mse", largest_error, "loss"])
    assert (named.metric, own.metric, loss.metric) == ("mse", "largest_error", "mse")
    assert torch.equal(named.scores, loss.scores)
    assert torch.equal(named.scores, cavia.evaluate(learner, cavia.Sine(), tasks=6).scores)
    assert torch.equal(own.scores, cavia.evaluate(learner, cavia.Sine(), tasks=6, metric=largest_error).scores)
    assert not own.higher_is_better
    assert own.scores.shape == (2, 6)


def test_a_metric_may_count():
    counted, share = cavia.evaluate(
        make(), cavia.Sine(), tasks=6, metric=[lambda y, t: (y > t)[..., 0], lambda y, t: (y > t).float().mean(-1)]
    )
    assert torch.equal(counted.scores, share.scores)
    assert 0 < share.scores.mean() < 1


def test_padded_points_do_not_count_for_an_own_metric():
    class Padded(cavia.Sine):
        def sample(self, *arguments, **named):
            batch = super().sample(*arguments, **named)
            mask = torch.ones(batch.query_x.shape[:2], dtype=torch.bool)
            mask[:, 4:] = False
            worthless = batch.query_y.where(mask.unsqueeze(-1), float("nan"))
            return cavia.TaskBatch(batch.support_x, batch.support_y, batch.query_x, worthless, query_mask=mask)

    assert cavia.evaluate(make(), Padded(), tasks=3, query=9, metric=largest_error).scores.isfinite().all()


def policy():
    torch.manual_seed(0)
    network = cavia.GaussianPolicy(2, 2, hidden=(8,), context=3)
    return cavia.CAVIA(network, network.loss, inner_lr=0.5), cavia.envs.Navigation(horizon=6)


def test_in_an_environment_returns_are_scored_with_the_tasks_and_what_was_adapted():
    learner, env = policy()
    evaluation = cavia.evaluate(learner, env, tasks=4, support=3, query=2, steps=2)
    assert (evaluation.metric, evaluation.higher_is_better, evaluation.scores.shape) == ("return", True, (3, 4))
    assert evaluation.tasks.shape == (4, 2)
    assert evaluation.adapted["context"].shape == (4, 3)
    assert "return after 2 steps" in str(evaluation)
    assert len(cavia.evaluate(learner, env, tasks=2, support=2).scores) == 2  # as many steps as in training
    assert cavia.evaluate(learner, env, tasks=4, support=3, query=2, steps=2, chunk=3).scores.shape == (3, 4)


def test_both_returns_are_of_the_same_updates_and_sampled_episodes_are_simulated_once(monkeypatch):
    learner, env = policy()
    resets, real = [], type(env).reset
    monkeypatch.setattr(type(env), "reset", lambda self, *given: (resets.append(1), real(self, *given))[1])
    sizes = {"tasks": 3, "support": 2, "steps": 2}
    sampled, likeliest = cavia.evaluate(learner, env, **sizes, metric=["return", "likeliest return"])
    assert len(resets) == 6
    assert torch.equal(sampled.scores, cavia.evaluate(learner, env, **sizes).scores)
    assert len(resets) == 9
    assert torch.equal(likeliest.scores, cavia.evaluate(learner, env, **sizes, metric="likeliest return").scores)
    assert torch.equal(sampled.adapted["context"], likeliest.adapted["context"])


@pytest.mark.parametrize(
    ("in_an_environment", "arguments", "message"),
    [
        (False, {"metric": "accurate"}, "unknown metric 'accurate'; did you mean 'accuracy'"),
        (False, {"metric": "accuracy"}, r"accuracy needs logits \[tasks, points, classes\]"),
        (False, {"metric": lambda y, t: (y - t).square()}, r"one value per point, \[2, 100\]; it returned \[2, 100, 1"),
        (False, {"metric": lambda y, t: (y - t).sum(-1) * 1j}, "must return real numbers, got torch.complex64"),
        (True, {"metric": "mse"}, "unknown metric in an environment 'mse'; choose from likeliest return, return"),
        (True, {"support": 0}, "support must be at least 1, got 0"),
        (True, {"query": 0}, "query must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_scored_is_named(in_an_environment, arguments, message):
    learner, source = policy() if in_an_environment else (make(), cavia.Sine())
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.evaluate(learner, source, tasks=2, **arguments)
