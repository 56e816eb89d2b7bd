import math

import pytest
import torch

import cavia
from cavia.tasks.batch import seeded_generator


def sample(split="train", tasks=500, seed=0, **arguments):
    return cavia.Sine(**arguments).sample(tasks, 10, 20, torch.Generator().manual_seed(seed), split)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_points_lie_on_the_curve_of_their_attributes(split):
    batch = sample(split)
    amplitude, phase = (batch.attributes[name].view(-1, 1, 1) for name in ("amplitude", "phase"))
    for x, y in ((batch.support_x, batch.support_y), (batch.query_x, batch.query_y)):
        torch.testing.assert_close(y, amplitude * torch.sin(x - phase))


def test_ranges_are_the_papers():
    batch = sample(tasks=2000)
    amplitude, phase = batch.attributes["amplitude"], batch.attributes["phase"]
    assert 0.1 <= amplitude.min() < 0.2
    assert 4.9 < amplitude.max() <= 5.0
    assert phase.min() >= 0
    assert math.pi - 0.05 < phase.max() <= math.pi
    assert -5 <= batch.support_x.min() < -4.9
    assert 4.9 < batch.support_x.max() <= 5


def test_the_same_generator_state_gives_the_same_tasks():
    assert torch.equal(sample(seed=4).query_y, sample(seed=4).query_y)
    assert not torch.equal(sample(seed=4).query_y, sample(seed=5).query_y)


def test_purposes_draw_different_numbers():
    drawn = {purpose: torch.rand(3, generator=seeded_generator(0, purpose)) for purpose in ("train", "val", "test")}
    assert not torch.equal(drawn["train"], drawn["val"])
    assert not torch.equal(drawn["val"], drawn["test"])


def test_query_points_are_spread_evenly_in_testing():
    batch = sample("test", tasks=2)
    torch.testing.assert_close(batch.query_x[0, :, 0], torch.linspace(-5, 5, 20))


@pytest.mark.parametrize("amplitude", [(5.0, 0.1), (0.1, math.inf), (math.nan, 1.0)])
def test_bad_ranges_are_named(amplitude):
    with pytest.raises(cavia.CaviaError, match="amplitude must be a finite range"):
        cavia.Sine(amplitude=amplitude)
