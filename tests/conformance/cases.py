"""Every learner and network of ours, each with data that suit it."""

import torch

import cavia
from cavia.building import known, module_of


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
