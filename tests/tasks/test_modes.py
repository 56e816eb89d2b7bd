"""Curves of several kinds: every kind is its equation."""

import math

import pytest
import torch

import cavia
from cavia.errors import CaviaError


def batch(kinds, split="train", tasks=200):
    return cavia.Modes(kinds).sample(tasks, 10, 12, torch.Generator().manual_seed(0), split)


def test_lines_are_lines_and_quadratics_are_quadratics():
    for kind, degree in (("line", 1), ("quadratic", 2)):
        points = batch((kind,))
        powers = points.support_x.double() ** torch.arange(degree + 1)
        coefficients = torch.linalg.lstsq(powers, points.support_y.double()).solution
        asked = points.query_x.double() ** torch.arange(degree + 1)
        torch.testing.assert_close(asked @ coefficients, points.query_y.double(), atol=1e-3, rtol=1e-3)
        steepest = coefficients[:, -1].abs()
        assert steepest.max() <= (3 if degree == 1 else 0.1501)
        assert degree == 1 or steepest.min() >= 0.0199


def test_l1_curves_have_one_corner_and_a_slope_in_range():
    points = batch(("l1",), split="test")
    x, y = points.query_x[..., 0], points.query_y[..., 0]
    slopes = y.diff(dim=1) / x.diff(dim=1)
    assert slopes.abs().max() <= 0.1501
    turns = (slopes.diff(dim=1).abs() > 1e-3).sum(1)
    assert turns.max() <= 2  # the corner lies between two points
    assert (slopes[:, 0] * slopes[:, -1] < 0).all()


def test_waves_stay_within_their_amplitude_and_a_sawtooth_rises_and_jumps():
    for kind in ("sine", "sawtooth"):
        points = batch((kind,), split="test")
        assert points.query_y.abs().max() <= 5
        assert points.query_y.abs().amax((1, 2)).min() > 0.05
    x = torch.linspace(-5, 5, 2000).view(1, -1, 1)
    from cavia.tasks.modes import KINDS

    y = KINDS["sawtooth"](x, torch.tensor([[[1.0, 1.0, 0.0, 0.0]]]))[0, :, 0]  # A = 5, ω = 2
    steps = y.diff()
    assert (steps > 0).sum() == len(steps) - 3  # three jumps in ten, at periods of π
    torch.testing.assert_close(
        steps[steps > 0], torch.full_like(steps[steps > 0], 10 / math.pi * 10 / 1999), rtol=1e-2, atol=1e-4
    )


def test_kinds_are_drawn_evenly_and_told_by_the_attribute():
    points = batch(cavia.Modes().kinds, tasks=2000)
    counts = points.attributes["kind"].bincount(minlength=5)
    assert counts.min() > 330
    lines = points.attributes["kind"] == 1
    powers = points.support_x[lines].double() ** torch.arange(2)
    line = torch.linalg.lstsq(powers, points.support_y[lines].double()).solution
    torch.testing.assert_close(powers @ line, points.support_y[lines].double(), atol=1e-4, rtol=1e-4)


def test_waves_alone_tell_their_parameters():
    points = batch(("sine",))
    amplitude, frequency, phase = (
        points.attributes[name].view(-1, 1, 1) for name in ("amplitude", "frequency", "phase")
    )
    torch.testing.assert_close(amplitude * (frequency * points.support_x + phase).sin(), points.support_y)
    assert batch(("sine", "sawtooth")).attributes.keys() == points.attributes.keys()
    assert batch(("sine", "line")).attributes.keys() == {"kind"}


def test_query_points_are_spread_evenly_in_tests_only():
    assert batch(("sine",), "test").query_x[3, :, 0].tolist() == pytest.approx(torch.linspace(-5, 5, 12).tolist())
    assert batch(("sine",)).query_x[3, :, 0].diff().min() < 0


@pytest.mark.parametrize(("kinds", "message"), [((), "at least one"), (("sin",), "did you mean 'sine'")])
def test_wrong_kinds_are_named(kinds, message):
    with pytest.raises(CaviaError, match=message):
        cavia.Modes(kinds)
