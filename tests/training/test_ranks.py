"""One run on several ranks is the run of one process, up to rounding."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector

import cavia
from cavia.envs.base import Step
from cavia.tensor_file import read_json, write_json
from cavia.training.batches import TaskFeed
from cavia.training.outer import Length
from cavia.training.ranks import joined
from cavia.training.simulated import EpisodeFeed
from tests.graphs import as_traced
from tests.training.ranked import TASKS, assert_alike, trained
from tests.training.runs import fit, make
from tests.training.together import on_ranks


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_200_steps_of_adam_are_those_of_one_process(method, ranks):
    assert_alike(trained(method, 200), on_ranks(ranks, trained, method, 200), 1e-8)


class Plane(cavia.envs.Navigation):
    """Navigation in float64, whose episodes end at different times."""

    def _start(self, tasks, rollouts, generator):
        self._goal = tasks.double()[:, None]
        self._position = 0.1 * torch.randn(len(tasks), rollouts, 2, generator=generator, dtype=torch.float64)
        return self._position.clone()

    def _advance(self, action):
        observation, reward, _ = super()._advance(action)
        return Step(observation, reward, reward > -0.1)


def acted(method, outer, iterations, tasks=TASKS, run_dir=None):
    """A run in an environment: the weights, and what `fit` returns."""
    torch.manual_seed(0)
    policy = cavia.GaussianPolicy(2, 2, (8,), context=3 if method == "CAVIA" else 0)
    learner = getattr(cavia, method)(policy, policy.loss, inner_lr=0.1).double()
    ended = cavia.fit(
        learner,
        Plane(horizon=6),
        iterations,
        outer=outer,
        tasks_per_batch=tasks,
        support=3,
        validation=cavia.Validation(tasks=4, every=50),
        run_dir=run_dir and cavia.RunFolder(run_dir, events=False),
        progress=False,
    )
    return parameters_to_vector(learner.parameters()).detach().tolist(), ended.best_score


# Ten conjugate gradients with the usual damping turn rounding of 1e-17 into a difference of 1e-5, and episodes into
# others, so steps are short here. The gradient of one step is compared below as it is.
TRPO = cavia.TRPO(max_kl=1e-4, cg_iterations=4, hvp_every=2, chunk=2)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("outer", [TRPO, cavia.PPO(epochs=3)], ids=["TRPO", "PPO"])
@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_200_steps_on_policies_are_those_of_one_process(method, outer, ranks):
    assert_alike(acted(method, outer, 200), on_ranks(ranks, acted, method, outer, 200), 1e-8)


def gradients(kind, tasks):
    """The meta-gradient of one step in float32, on our share of a batch."""
    torch.manual_seed(0)
    with joined(torch.device("cpu")) as ranks:
        if kind == "Adam":
            feed, step = adam_parts(ranks, tasks)
            step(feed.draw()[0])
            return (10 * step.step.first_moment).tolist()  # after one step, a tenth of the gradient
        env = cavia.envs.Navigation(horizon=10)
        policy = cavia.GaussianPolicy(2, 2, (20,), context=3)
        learner = cavia.CAVIA(policy, policy.loss, inner_lr=0.1)
        feed, step = EpisodeFeed(learner, env, tasks, support=4), cavia.TRPO().step(learner, Length(1, None))
        assert step.spread(ranks)
        feed.spread(ranks)
        return step.gradient(step.parts(feed.draw()[0], None))[0].tolist()


def adam_parts(ranks, tasks):
    learner = make(hidden=(40, 40))
    feed, step = TaskFeed(learner, cavia.Sine(), tasks), cavia.Adam(clip=None).step(learner, Length(1, None))
    assert step.spread(ranks)
    feed.begin(None)
    feed.spread(ranks)
    return feed, step


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "tasks"), [(2, 6), (4, 7)])
@pytest.mark.parametrize("kind", ["Adam", "TRPO"])
def test_gradients_of_one_step_agree_to_rounding_also_when_shares_are_uneven(kind, ranks, tasks):
    alone, several = torch.tensor(gradients(kind, tasks)), on_ranks(ranks, gradients, kind, tasks)
    for one in several:
        assert one == several[0]
    difference = (torch.tensor(several[0]) - alone).abs().max() / alone.abs().max()
    assert difference < 2e-6
    assert alone.abs().max() > 0.1


WAYS = {
    "compiled": {"compile": True},
    "in chunks": {"chunk": 2},
    "bf16": {"precision": "bf16"},
    "uneven": {"tasks_per_batch": 5},
}


def trained_so(way):
    with as_traced():
        return trained("CAVIA", 30, changes=WAYS[way], double=way != "bf16")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_take_a_step_is_that_of_one_process(way):
    """Compiled, one process takes many steps in a call; the ranks take them one by one."""
    assert_alike(trained_so(way), on_ranks(2, trained_so, way), 1e-2 if way == "bf16" else 1e-8)


def normed(iterations):
    """A network with running statistics, which are part of what is trained."""
    torch.manual_seed(0)
    glyphs = cavia.Episodes(cavia.synthetic_glyphs(8, 6), ways=2, shots=1, queries=2, channels=1)
    network = cavia.ConvNet(ways=2, filters=3, image=28, channels=1, context=2, norm="running")
    learner = cavia.CAVIA(network, "cross_entropy", inner_lr=0.1)
    fit(learner, glyphs, iterations, tasks_per_batch=3, validation_tasks=0, progress=False, compile=False)
    return learner.model.running.flatten().tolist()


@pytest.mark.slow
def test_running_statistics_are_those_of_all_tasks():
    alone, (one, other) = normed(2), on_ranks(2, normed, 2)
    assert one == other
    assert one == pytest.approx(alone, abs=1e-5)


@pytest.mark.slow
def test_ranks_go_on_with_the_kernel_of_the_run(tmp_path):
    """Its config.json, which only the first rank reads, names none if the run is older than kernels."""
    acted("CAVIA", TRPO, 2, run_dir=tmp_path)
    config = read_json(tmp_path / "config.json")
    assert config.pop("kernel")
    write_json(tmp_path / "config.json", config)
    one, other = on_ranks(2, acted, "CAVIA", TRPO, 4, TASKS, tmp_path)
    assert one == other
    assert "kernel" not in read_json(tmp_path / "config.json")
