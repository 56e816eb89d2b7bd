"""What contexts mean: scores of contexts that are known functions of known parameters."""

import math

import pytest
import torch

from cavia.evaluation.identifiability import identifiability


def drawn(seed, *sizes):
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def parameters():
    return {"a": drawn(0, 300), "b": drawn(1, 300)}


def of(parameters):
    return torch.stack([*parameters.values()], 1)


def test_a_linear_map_of_the_parameters_is_told_in_every_way(parameters):
    r2 = identifiability(of(parameters) @ torch.tensor([[2.0, 1.0], [-1.0, 3.0]]) + 5, parameters)
    values = [*r2["linear"].values(), *r2["non-linear"].values(), *r2["of context"], r2["whole"]]
    assert min(values) > 0.999


def test_an_invertible_map_that_is_not_linear_is_told_by_kernel_regression_only(parameters):
    angle, radius = 1.8 * math.pi * parameters["a"], 1 + parameters["b"]  # a ring: no line tells the radius
    r2 = identifiability(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), parameters)
    assert r2["linear"]["a"] < 0.8
    assert r2["linear"]["b"] < 0.1
    assert min(r2["non-linear"].values()) > 0.95
    assert r2["whole"] > 0.99


def test_a_random_number_beside_the_parameters_is_something_else(parameters):
    r2 = identifiability(torch.cat([of(parameters), drawn(2, 300, 1)], 1), parameters)
    assert min(r2["non-linear"].values()) > 0.98
    assert min(r2["of context"][:2]) > 0.99
    assert r2["of context"][2] < 0.1
    assert r2["whole"] == pytest.approx(2 / 3, abs=0.07)


def test_contexts_of_other_tasks_tell_nothing(parameters):
    order = torch.randperm(300, generator=torch.Generator().manual_seed(3))
    r2 = identifiability(of(parameters)[order], parameters)
    values = [*r2["linear"].values(), *r2["non-linear"].values(), *r2["of context"], r2["whole"]]
    assert all(abs(value) < 0.1 for value in values)


def test_an_angle_is_a_point_on_a_circle():
    phase = 2 * math.pi * drawn(4, 300)
    circle = torch.stack([phase.cos(), phase.sin()], 1)
    r2 = identifiability(circle, {"phase": phase}, periods={"phase": 2 * math.pi})
    assert min(r2["linear"]["phase"], r2["non-linear"]["phase"], r2["whole"]) > 0.999
    assert identifiability(circle, {"phase": phase})["linear"]["phase"] < 0.7  # as if 0 and 2π were far apart
    half = identifiability(circle, {"phase": phase / 2}, periods={"phase": math.pi})
    assert half["linear"]["phase"] > 0.999


def test_each_number_is_told_on_its_own_scale(parameters):
    r2 = identifiability(of(parameters) * torch.tensor([1e4, 1e-4]), parameters)
    assert min(*r2["non-linear"].values(), *r2["of context"]) > 0.999


def test_nothing_is_said_of_few_tasks_or_of_contexts_that_are_not_finite(parameters):
    few = {name: values[:9] for name, values in parameters.items()}
    assert identifiability(of(few), few) == {}
    broken = of(parameters)
    broken[7, 0] = math.inf
    assert identifiability(broken, parameters) == {}


def test_a_context_that_never_moves_holds_nothing_else(parameters):
    r2 = identifiability(torch.zeros(300, 2), parameters)
    assert r2["whole"] == 1
    assert max(*r2["linear"].values(), *r2["non-linear"].values()) < 0.01
