"""All of ours keep their promises."""

import pytest
import torch

import cavia
from cavia.envs import Navigation
from cavia.models.base import ContextModel
from tests.conformance.cases import LEARNERS, MODELS, ours


def test_every_learner_and_network_of_ours_is_checked():
    assert ours(cavia.Learner) <= set(LEARNERS)
    assert ours(ContextModel) <= set(MODELS)


@pytest.mark.parametrize("name", LEARNERS)
def test_our_learners_keep_their_promises(name):
    torch.manual_seed(0)
    learner, batch = LEARNERS[name]()
    cavia.check_learner(learner, batch)
    assert learner.training


@pytest.mark.parametrize("name", MODELS)
def test_our_networks_keep_their_promises(name):
    torch.manual_seed(0)
    cavia.check_model(*MODELS[name]())


@pytest.mark.parametrize(
    "family",
    [
        cavia.Sine,
        cavia.Modes,
        cavia.LotkaVolterra,
        lambda: cavia.LotkaVolterra(known=True, support_window=1, query_window=4),
        lambda: cavia.Completion(cavia.synthetic_faces(train=4, val=3, test=3)),
        lambda: cavia.Episodes(cavia.synthetic_glyphs(6, 5, 5, drawings=6, size=8), ways=3, shots=1, queries=2),
        lambda: cavia.Tasks([(torch.randn(30, 2), torch.randn(30)) for _ in range(30)]),
    ],
    ids=["sine", "modes", "dynamics", "known systems", "completion", "episodes", "own"],
)
def test_our_families_keep_their_promises(family):
    cavia.check_tasks(family())


def test_our_environments_keep_their_promises():
    cavia.check_env(Navigation(horizon=4))
    cavia.check_env(Navigation(horizon=4, goals="semicircle", disk=1.9))
    pytest.importorskip("mujoco")
    pytest.importorskip("gymnasium")
    from cavia.envs import CheetahDirection, CheetahVelocity

    cavia.check_env(CheetahDirection(horizon=4))
    cavia.check_env(CheetahVelocity(horizon=4))
