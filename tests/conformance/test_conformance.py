"""All of ours keep their promises; whoever breaks one is told which."""

import pytest
import torch

import cavia
from cavia.building import known, module_of
from cavia.conformance.promise import Broken
from cavia.envs import Navigation
from cavia.envs.base import Step
from cavia.models.base import ContextModel


def ours(family):
    return {name for name, kind in known(family).items() if module_of(kind) is None}


def mlp(**arguments):
    return cavia.MLP(**{"inputs": 1, "outputs": 1, "hidden": (8,), "context": 3} | arguments)


def sines():
    return cavia.Sine().sample(3, 6, 5, torch.Generator().manual_seed(0))


def classes():
    batch = sines()
    labels = [(y.squeeze(-1) > 0).long() for y in (batch.support_y, batch.query_y)]
    return cavia.TaskBatch(batch.support_x, labels[0], batch.query_x, labels[1])


def flow(**arguments):
    return cavia.Flow(2, hidden=(6,), context=2, **arguments)


def trajectories():
    return cavia.LotkaVolterra(support_window=2, query_window=3).sample(3, 2, 2, torch.Generator().manual_seed(0))


def pictures():
    family = cavia.Episodes(
        cavia.synthetic_glyphs(6, 5, 5, drawings=6, size=16), ways=3, shots=1, queries=2, channels=1
    )
    return family.sample(2, family.support, family.query, torch.Generator().manual_seed(0))


def episodes():
    """Steps of two observations, with what was drawn for an episode, three numbers, and its credit."""
    random = torch.Generator().manual_seed(0)
    sizes = ((6, 2 + 3 + 1), (6, 2 + 1), (5, 2 + 3 + 1), (5, 2 + 1))
    return cavia.TaskBatch(*(torch.randn(3, *size, generator=random) for size in sizes))


def policy(context=3):
    return cavia.GaussianPolicy(2, 2, (8,), context), cavia.GaussianPolicy.loss


LEARNERS = {
    "CAVIA": lambda: (cavia.CAVIA(mlp(), "mse", inner_steps=2), sines()),
    "CAVIA, Adam": lambda: (cavia.CAVIA(mlp(), "mse", 0.1, 2, optimiser="adam"), sines()),
    "CAVIA, Gauss–Newton": lambda: (cavia.CAVIA(mlp(), "mse", 0.1, 2, optimiser="gauss_newton"), sines()),
    "MAML": lambda: (cavia.MAML(mlp(), "mse", inner_steps=2), sines()),
    "ANIL": lambda: (cavia.ANIL(mlp(), "mse"), sines()),
    "MetaSGD": lambda: (cavia.MetaSGD(mlp(), "mse"), sines()),
    "CaviaMAML": lambda: (cavia.CaviaMAML(mlp(), "mse"), sines()),
    "Reptile": lambda: (cavia.Reptile(mlp(), "mse", inner_steps=2), sines()),
    "MAMLPlusPlus": lambda: (cavia.MAMLPlusPlus(mlp(), "mse", inner_steps=2), sines()),
    "ImplicitMAML": lambda: (cavia.ImplicitMAML(mlp(), "mse"), sines()),
    "MTNet": lambda: (cavia.MTNet(mlp(), "mse", inner_steps=2), sines()),
    "MetaLSTM": lambda: (cavia.MetaLSTM(mlp(), "mse", inner_steps=2, hidden=3), sines()),
    "EMAML": lambda: (cavia.EMAML(mlp(), "mse", inner_steps=2), sines()),
    "SampledCAVIA": lambda: (cavia.SampledCAVIA(*policy(), inner_steps=2), episodes()),
    "MAESN": lambda: (cavia.MAESN(*policy(), inner_steps=2), episodes()),
    "GaussNewton": lambda: (cavia.GaussNewton(mlp(), "mse"), sines()),
    "StepwiseCAVIA": lambda: (cavia.StepwiseCAVIA(mlp(), "mse", inner_steps=3), sines()),
    "Gauss–Newton on a flow": lambda: (cavia.GaussNewton(flow(), "mse", inner_steps=2), trajectories()),
    "CAVIA on a flow": lambda: (cavia.CAVIA(flow(), "mse", 0.1), trajectories()),
    "CNP": lambda: (cavia.CNP(mlp(), "mse", inputs=1, outputs=1, encoder=(5,)), sines()),
    "ProtoNets": lambda: (cavia.ProtoNets(mlp(context=0, outputs=4), ways=2), classes()),
    "MatchingNets": lambda: (cavia.MatchingNets(mlp(context=0, outputs=4), ways=2), classes()),
    "RelationNets": lambda: (cavia.RelationNets(mlp(context=0, outputs=4), ways=2), classes()),
    "VERSA": lambda: (cavia.VERSA(mlp(context=0, outputs=4), ways=2, samples=3), classes()),
    "VERSARegression": lambda: (cavia.VERSARegression(mlp(context=0, outputs=4), encoder=(5,), samples=3), sines()),
    "LEO": lambda: (cavia.LEO(mlp(context=0, outputs=4), ways=2, inner_steps=2, latent=3, hidden=5), classes()),
    "LEO on pictures, support norm": lambda: (
        cavia.LEO(cavia.ConvNet(0, 4, image=16, channels=1, context=0, norm="support"), ways=3, latent=3),
        pictures(),
    ),
    "RelationNets on pictures": lambda: (
        cavia.RelationNets(cavia.ConvNet(0, 4, image=16, channels=1, context=0), ways=3),
        pictures(),
    ),
    "VERSA on pictures": lambda: (
        cavia.VERSA(cavia.ConvNet(0, 4, image=16, channels=1, context=0), ways=3),
        pictures(),
    ),
    "MTNet on pictures": lambda: (
        cavia.MTNet(cavia.ConvNet(3, 4, image=16, channels=1, context=0), "cross_entropy", 0.1),
        pictures(),
    ),
    "CAVIA on pictures": lambda: (
        cavia.CAVIA(cavia.ConvNet(3, 16, image=16, channels=1, context=4), "cross_entropy", 0.1),
        pictures(),
    ),
    "MAML on pictures, support norm": lambda: (
        cavia.MAML(cavia.ConvNet(3, 4, image=16, channels=1, context=0, norm="support"), "cross_entropy", 0.1),
        pictures(),
    ),
    "ProtoNets on pictures": lambda: (
        cavia.ProtoNets(cavia.ConvNet(0, 4, image=16, channels=1, context=0), ways=3),
        pictures(),
    ),
    "CAVIA, own loss": lambda: (cavia.CAVIA(mlp(), lambda p, y: (p - y).abs().squeeze(-1)), sines()),
    "CAVIA, conditioned": lambda: (
        cavia.CAVIA(cavia.condition(torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)),
                                    "0", context=3, example=torch.rand(4, 1)), "mse"),
        sines(),
    ),
}  # fmt: skip
MODELS = {
    "MLP": lambda: (mlp(), torch.rand(3, 4, 1)),
    "MLP, later layers": lambda: (mlp(at=(1,)), torch.rand(3, 4, 1)),
    "ConvNet": lambda: (cavia.ConvNet(3, 4, image=16, channels=1, context=4), torch.rand(2, 3, 1, 16, 16)),
    "WaveBasis": lambda: (cavia.WaveBasis(2, 3, waves=4, context=5), torch.rand(3, 4, 2)),
    "Flow": lambda: (flow(), trajectories().support_x),
    "Flow, adaptive": lambda: (flow(solver="adaptive"), trajectories().support_x),
    "GaussianPolicy": lambda: (cavia.GaussianPolicy(2, 2, hidden=(8,)), torch.rand(3, 4, 2)),
    "CategoricalPolicy": lambda: (cavia.CategoricalPolicy(2, 3, hidden=(8,)), torch.rand(3, 4, 2)),
    "Conditioned": lambda: (
        cavia.condition(torch.nn.Sequential(torch.nn.Linear(2, 4)), "0", context=3, example=torch.rand(4, 2)),
        torch.rand(3, 4, 2),
    ),
}


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


# What breaks a promise


class Leaking(cavia.CAVIA):
    """The mean over tasks reaches each of them."""

    def infer(self, x, y, mask, steps, start):
        return super().infer(x, y, mask, steps, start).map(lambda value: value - value.mean(0))


class Remembering(cavia.CAVIA):
    def respond(self, x, adapted):
        with torch.no_grad():
            next(iter(self.parameters())).mul_(1.001)
        return super().respond(x, adapted)


class Looking(cavia.CAVIA):
    """Looks at padding."""

    def infer(self, x, y, mask, steps, start):
        return super().infer(x, y.nan_to_num(1.0), None, steps, start)


class Starting(cavia.CAVIA):
    """Begins anew at every call."""

    def infer(self, x, y, mask, steps, start):
        return super().infer(x, y, mask, steps, None)


class Unsaid(cavia.CAVIA):
    def __init__(self, model, loss, extra=1):
        super().__init__(model, loss)


class Detached(cavia.CAVIA):
    def task_losses(self, batch):
        return super().task_losses(batch).detach()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Leaking, "a task among others adapts and predicts as it does alone"),
        (Remembering, "the same points give the same prediction|no weight or buffer|as it does alone"),
        (Looking, "points that the mask leaves out do not count"),
        (Starting, "end where steps at once do|leave what was given"),
        (Unsaid, "must have its constructor's argument 'extra' as an attribute"),
        (Detached, "does not require grad|depends on what is trained"),
    ],
)
def test_a_learner_that_breaks_a_promise_is_told_which(kind, message):
    torch.manual_seed(0)
    with pytest.raises((cavia.CaviaError, RuntimeError), match=message):
        cavia.check_learner(kind(mlp(), "mse", **({} if kind is Unsaid else {"inner_steps": 2})), sines())


class Mixing(cavia.MLP):
    def head(self, h, context):
        return super().head(h, context) + h.mean()


class Deaf(cavia.MLP):
    def head(self, h, context):
        return super().head(h, torch.zeros_like(context))


class Flat(cavia.MLP):
    def head(self, h, context):
        return super().head(h, context).flatten()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Mixing, "depends on that task alone"),
        (Deaf, "the context changes the prediction"),
        (Flat, r"predictions are \[T, N, ...\]"),
    ],
)
def test_a_network_that_breaks_a_promise_is_told_which(kind, message):
    with pytest.raises(Broken, match=message):
        cavia.check_model(kind(1, 1, (8,), 3), torch.rand(3, 4, 1))


class Careless(cavia.Sine):
    """Draws from PyTorch's own generator."""

    def sample(self, tasks, support, query, generator, split="train"):
        return super().sample(tasks, support, query, torch.Generator().manual_seed(int(torch.randint(9, ()))), split)


class Stubborn(cavia.Sine):
    def sample(self, tasks, support, query, generator, split="train"):
        return super().sample(tasks, support, query, torch.Generator().manual_seed(0), split)


class Short(cavia.Sine):
    def sample(self, tasks, support, query, generator, split="train"):
        return super().sample(tasks, support - 1, query, generator, split)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Careless, "not from PyTorch's own"), (Stubborn, "gives other tasks"), (Short, "10 support points")],
)
def test_a_family_that_breaks_a_promise_is_told_which(kind, message):
    with pytest.raises(Broken, match=message):
        cavia.check_tasks(kind())


class Forgetting(Navigation):
    def _load_state(self, state):
        super()._load_state(state)
        self._position = self._position + 1


class Endless(Navigation):
    def _advance(self, action):
        step = super()._advance(action)
        return Step(step.observation, torch.full_like(step.reward, torch.nan), step.done)


@pytest.mark.parametrize(("kind", "message"), [(Forgetting, "load_state resumes"), (Endless, "rewards are finite")])
def test_an_environment_that_breaks_a_promise_is_told_which(kind, message):
    with pytest.raises(Broken, match=message):
        cavia.check_env(kind(horizon=4))
