"""Dynamical systems: their equations, CoDA's numbers, splits and windows."""

import math

import numpy as np
import pytest
import torch

import cavia
from cavia.errors import CaviaError

SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in (cavia.Glycolysis, cavia.Selkov)]
FAMILIES = [cavia.LotkaVolterra, *SLOW]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_lotka_volterra_conserves_what_it_must():
    family = cavia.LotkaVolterra()
    parameters = torch.tensor([[0.5, 1.0], [1.125, 0.625]], dtype=torch.float64)
    states = family.simulate(parameters, 1 + torch.rand(2, 5, 2, generator=generator(), dtype=torch.float64)).double()
    values = family.conserved(states, parameters[:, None, None])
    torch.testing.assert_close(values, values[..., :1].expand_as(values), atol=3e-6, rtol=0)
    assert states.std(2).min() > 0.05  # it moves all the same


@pytest.mark.parametrize("kind", FAMILIES)
def test_trajectories_are_those_of_an_independent_integrator(kind):
    integrate = pytest.importorskip("scipy.integrate")
    batch = kind().sample(2, 1, 2, generator(), "test")
    for task, trajectory in ((0, 0), (1, 1)):
        own = torch.stack([value[task] for value in batch.attributes.values()]).double()
        times = batch.query_x["times"][task, trajectory, 0].double().numpy()
        solved = integrate.solve_ivp(
            lambda t, state, own=own: kind.derivative(torch.from_numpy(state), own).numpy(),
            (0, times[-1]), batch.query_x["state"][task, trajectory, 0].double().numpy(), "DOP853", times,
            rtol=1e-10, atol=1e-10,
        )  # fmt: skip
        actual = batch.query_y[task, trajectory, 0].double()
        torch.testing.assert_close(actual, torch.from_numpy(solved.y.T), atol=1e-5, rtol=1e-5)


def test_initial_states_are_those_of_coda():
    batch = cavia.LotkaVolterra().sample(4, 1, 2, generator(), "test")
    first = 1 + np.random.RandomState(0).random_sample(2)  # of the known trajectory, in every system
    asked = [1 + np.random.RandomState(2**31 - 1 - i).random_sample(2) for i in range(2)]
    np.testing.assert_allclose(batch.support_x["state"][:, 0, 0], np.tile(first, (4, 1)), rtol=1e-6)
    np.testing.assert_allclose(batch.query_x["state"][3, :, 0], asked, rtol=1e-6)
    assert batch.query_x["times"][0, 0, 0, -1] == 9.5
    systems = {(b, d) for b, d in zip(*(v.tolist() for v in batch.attributes.values()), strict=True)}
    assert systems == {(0.625, 0.625), (0.625, 1.125), (1.125, 0.625), (1.125, 1.125)}


def test_glycolysis_keeps_its_pools():
    """S₅ + (N − S₅) and what the equations share: the flux from S₂ to S₃ leaves one and enters the other."""
    state = torch.rand(5, 7, generator=generator(), dtype=torch.float64)
    change = cavia.Glycolysis.derivative(state, torch.tensor([90.0, 0.75], dtype=torch.float64))
    s1, s2, s3, s4, s5, s6, s7 = state.unbind(-1)
    flux = 90 * s1 * s6 / (1 + (s6 / 0.75) ** 4)
    torch.testing.assert_close(change[:, 0], 2.5 - flux)
    torch.testing.assert_close(change[:, 1] + change[:, 2], 2 * flux - 12 * s2 * s5 - 16 * s3 * (4 - s6))
    torch.testing.assert_close(change[:, 2] + change[:, 3], 6 * s2 * (1 - s5) - 100 * s4 * s5 - 13 * (s4 - s7))
    torch.testing.assert_close(change[:, 6], 1.3 * (s4 - s7) - 1.8 * s7)


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_system_and_no_trajectory_is_in_two_splits(kind):
    systems = [set(kind.systems[split]) for split in ("train", "val", "test")]
    assert not systems[0] & systems[1]
    assert not systems[0] & systems[2]
    assert not systems[1] & systems[2]
    old, new = kind(known=True), kind()
    batch = old.sample(3, 2, 2, generator(), "test")
    own = torch.stack(list(batch.attributes.values()), 1)
    distances = torch.cdist(own, torch.tensor(kind.systems["train"]).float())
    assert distances.min(1).values.max() < 1e-5
    starts = [family.sample(3, 1, 3, generator(), split).query_x["state"][0] for family, split in
              ((new, "train"), (old, "val"), (old, "test"))]  # fmt: skip
    assert len({tuple(state.tolist()) for one in starts for state in one[:, 0]}) == 9


def test_training_systems_come_once_each_before_one_comes_twice():
    batch = cavia.LotkaVolterra().sample(18, 1, 3, generator())
    systems = list(zip(*(v.tolist() for v in batch.attributes.values()), strict=True))
    assert len(set(systems[:9])) == len(set(systems[9:])) == 9
    shared = batch.support_x["state"][:, :, 0].unsqueeze(2) == batch.query_x["state"][:, :, 0].unsqueeze(1)
    assert not shared.all(-1).any()  # support and query are apart


def test_windows_are_pieces_of_the_trajectory():
    states = torch.rand(2, 3, 6, 4, generator=generator())
    x, y = cavia.windows(states, dt=0.5, length=2)
    assert x["state"].shape == (2, 3, 4, 4)
    assert y.shape == (2, 3, 4, 2, 4)
    assert torch.equal(x["state"][1, 2, 3], states[1, 2, 3])
    assert torch.equal(y[1, 2, 3], states[1, 2, 4:6])
    assert x["times"][0, 0, 0].tolist() == [0.5, 1.0]
    x, y = cavia.windows(states, dt=0.5)
    assert torch.equal(y[:, :, 0], states[:, :, 1:])


def test_systems_of_ones_choice():
    family = cavia.LotkaVolterra(support_window=1)
    batch = family.of([[0.7, 0.8], [0.9, 0.6]], 2, 1, generator())
    assert batch.support_y.shape == (2, 2, 19, 1, 2)
    assert batch.query_y.shape == (2, 1, 1, 19, 2)
    assert batch.attributes["delta"].tolist() == pytest.approx([0.8, 0.6])
    assert not torch.equal(batch.support_x["state"][0], batch.support_x["state"][1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cavia.LotkaVolterra(support_window=0), "support_window must be at least 1"),
        (lambda: cavia.LotkaVolterra(query_window=20), "query_window must be at most 19"),
        (lambda: cavia.LotkaVolterra().sample(1, 5, 1, generator()), "a training system has 4 trajectories"),
        (lambda: cavia.LotkaVolterra().sample(1, 1, 2000, generator(), "test"), "query must be at most 1000"),
        (lambda: cavia.LotkaVolterra().of([[1.0]], 1, 1, generator()), r"parameters must be finite \[T, 2\]"),
        (lambda: cavia.LotkaVolterra().of([[1.0, math.nan]], 1, 1, generator()), "parameters must be finite"),
        (lambda: cavia.windows(torch.rand(2, 3), 0.1), r"states must be floating-point \[T, N, 2 or more, D\]"),
        (lambda: cavia.windows(torch.rand(1, 1, 3, 2), 0.0), "dt must be above 0"),
        (lambda: cavia.windows(torch.rand(1, 1, 3, 2), 0.1, 3), "length must be at most 2"),
    ],
)
def test_misuse_is_named(call, message):
    with pytest.raises(CaviaError, match=message):
        call()
