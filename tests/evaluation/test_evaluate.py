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
    found = cavia.evaluate(make(), cavia.Sine(), tasks=50, steps=3)
    assert found.metric == "mse"
    assert found.scores.shape == (4, 50)
    torch.testing.assert_close(found.mean, found.scores.mean(1))
    torch.testing.assert_close(found.interval, 1.96 * found.scores.std(1) / 50**0.5)
    assert "mse after 3 steps" in str(found)


def test_chunks_do_not_change_the_scores_and_seeds_do():
    learner = make()
    whole = cavia.evaluate(learner, cavia.Sine(), tasks=20).scores
    torch.testing.assert_close(cavia.evaluate(learner, cavia.Sine(), tasks=20, chunk=7).scores, whole)
    assert not torch.equal(cavia.evaluate(learner, cavia.Sine(), tasks=20, seed=1).scores, whole)


def test_classification_is_scored_by_accuracy():
    class Signs:
        def sample(self, tasks, support, query, generator, split="train"):
            x = torch.randn(tasks, support + query, 2, generator=generator)
            labels = (x[..., 0] > 0).long()
            return cavia.TaskBatch(x[:, :support], labels[:, :support], x[:, support:], labels[:, support:])

    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(2, 2, context=2), "cross_entropy")
    cavia.fit(learner, Signs(), 60, progress=False, validation=cavia.Validation(every=20))
    found = cavia.evaluate(learner, Signs(), tasks=30)
    assert found.metric == "accuracy"
    assert found.higher_is_better
    assert 0.85 < found.mean[-1] <= 1


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
    found = plane(torch.tensor([[1.0], [2.0], [6.0]]))
    assert found[:, 0].abs().tolist() == [2.0, 1.0, 3.0]
    assert found[:, 1].tolist() == [0.0, 0.0, 0.0]


def test_linear_r2():
    points = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    unrelated = torch.randn(50, generator=torch.Generator().manual_seed(1))
    found = linear_r2(points, torch.stack([3 * points[:, 0] - points[:, 1] + 2, unrelated], 1))
    assert found[0] > 0.9999
    assert found[1] < 0.3


def test_axis_alignment_is_the_correlation_of_each_coordinate_with_each_value():
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    points[:, 2] = 1.0  # never moves
    values = torch.stack([-2 * points[:, 1] + 5, points[:, 0] + points[:, 1]], 1)
    found = axis_alignment(points, values)
    expected = np.corrcoef(points[:, 0].numpy(), values[:, 1].numpy())[0, 1]
    assert found.shape == (3, 2)
    assert found[1, 0].item() == pytest.approx(-1.0)
    assert found[0, 1].item() == pytest.approx(expected, abs=1e-6)
    assert found[2].tolist() == [0.0, 0.0]
    swapped = axis_alignment(points.flip(1), values)
    torch.testing.assert_close(swapped, found.flip(0))
