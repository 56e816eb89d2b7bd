"""Learners to compile, and the comparison with the learner itself."""

import torch

import cavia


def mlp(**arguments):
    return cavia.MLP(**{"inputs": 2, "outputs": 1, "hidden": (6,), "context": 3} | arguments)


def labels_of(x):
    return (x.sum(-1) > 0).long()


def common(mlp):
    """Learners on networks that `mlp` makes, by name: a function that makes each."""
    return {
        "CAVIA": lambda: cavia.CAVIA(mlp(), "mse", inner_steps=2),
        "MAML": lambda: cavia.MAML(mlp(), "mse"),
        "ANIL": lambda: cavia.ANIL(mlp(), "mse"),
        "Meta-SGD": lambda: cavia.MetaSGD(mlp(), "mse"),
        "CAVIA+MAML": lambda: cavia.CaviaMAML(mlp(), "mse"),
        "Reptile": lambda: cavia.Reptile(mlp(), "mse", inner_steps=2),
        "Gauss–Newton": lambda: cavia.GaussNewton(mlp(), "mse"),
        "ProtoNets": lambda: cavia.ProtoNets(mlp(context=0, outputs=4), ways=2),
        "MatchingNets": lambda: cavia.MatchingNets(mlp(context=0, outputs=4), ways=2),
    }


LEARNERS = common(mlp) | {
    "CAVIA, later layers": lambda: cavia.CAVIA(mlp(at=(1,), outputs=2), "cross_entropy", learn_init=True),
    "Gauss–Newton on waves": lambda: cavia.GaussNewton(cavia.WaveBasis(2, 1, waves=4, context=3), "mse"),
    "CNP": lambda: cavia.CNP(mlp(), "mse", inputs=2, outputs=1, encoder=(5,)),
}


def make(name, dtype=torch.float64):
    torch.manual_seed(0)
    return LEARNERS[name]().to(dtype)


def points(learner, tasks=3, support=3, query=5, seed=0):
    """Support x and y and query x."""
    generator = torch.Generator().manual_seed(seed)
    dtype = next(learner.parameters()).dtype
    x, q = (torch.rand(tasks, n, 2, generator=generator, dtype=torch.float64).to(dtype) for n in (support, query))
    classifies = learner.loss == "cross_entropy"
    return x, labels_of(x - 0.5) if classifies else x.prod(-1, keepdim=True), q


def assert_same(compiled, learner, tasks=3, support=3, query=5, **arguments):
    x, y, q = points(learner, tasks, support, query)
    expected, adapted = (one.adapt(x, y, **arguments) for one in (learner, compiled))
    if not isinstance(learner, cavia.MatchingNets):  # which keeps every point, padding too, with no vote
        (tensors, layout), (expected_tensors, expected_layout) = adapted.flatten(), expected.flatten()
        torch.testing.assert_close(tensors, expected_tensors)
        assert layout == expected_layout
    prediction = compiled.predict(q, adapted)
    assert not prediction.requires_grad
    assert prediction.is_contiguous()
    torch.testing.assert_close(prediction, learner.predict(q, expected).detach())
    return adapted
