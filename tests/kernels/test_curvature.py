"""The kernel for products with Hessians against autograd, which differentiates twice, in double precision."""

import pytest
import torch
from torch.nn.functional import linear

from cavia.kernels import curvature
from cavia.kernels.build import FLAGS, library, load
from cavia.kernels.curvature import TILE, product, turned

SIZES = [(3, 2), (2, 7, 3), (20, 100, 100, 6), (17, 16, 33, 5, 1)]
OTHER_FLAGS = {"avx2": ("-mno-avx512f", "-mprefer-vector-width=256"), "sse": ("-mno-avx",)}


def normal(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size) + seed), dtype=torch.float64)


class Problem:
    """A network, a loss of its output whose Hessian is known, and a change of its weights."""

    def __init__(self, sizes, categorical, points=2 * TILE):
        self.sizes, self.categorical, self.x = sizes, categorical, normal(sizes[0], points)
        pairs = list(zip(sizes[1:], sizes[:-1], strict=True))
        self.weights = [(normal(o, i) / i**0.5).requires_grad_() for o, i in pairs]
        self.biases = [(normal(o, seed=1) / 3).requires_grad_() for o, _ in pairs]
        self.change = [normal(*weight.shape, seed=2) for weight in self.weights]
        self.bias_change = [normal(*bias.shape, seed=3) for bias in self.biases]
        self.factor = normal(points, seed=4)  # of each point in the loss, of either sign
        self.inputs, self.sums = self.forward()
        self.by_sums = torch.autograd.grad(self.loss(self.sums[-1]), self.sums, retain_graph=True)

    def forward(self):
        inputs, sums = [self.x], []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if sums:
                inputs.append(sums[-1].relu())
            sums.append(linear(inputs[-1].T, weight, bias).T)
        return inputs, sums

    def loss(self, output):
        """−Σ log of the first action's chance, or Σ of half the squares, each point with its factor."""
        values = output.logsumexp(0) - output[0] if self.categorical else 0.5 * output.square().sum(0)
        return (self.factor * values).sum()

    def expected(self):
        """The Hessian times the change, by weights and by biases."""
        trained = [*self.weights, *self.biases]
        gradients = torch.autograd.grad(self.loss(self.forward()[1][-1]), trained, create_graph=True)
        slope = sum((one * by).sum() for one, by in zip(gradients, [*self.change, *self.bias_change], strict=True))
        return [value.float() for value in torch.autograd.grad(slope, trained)]

    def parts(self):
        def single(values):
            return [value.detach().float().contiguous() for value in values]

        inputs, by_sums = single(self.inputs), single(self.by_sums)
        return {
            "weight": single(self.weights),
            "inputs": inputs,
            "turned": [turned(h) for h in inputs],
            "by_sums": [None, *by_sums[1:]],
            "by_turned": [None, *(turned(delta) for delta in by_sums[1:])],
            "change": single(self.change),
            "bias_change": single(self.bias_change),
        }

    def of_output(self):
        output = self.sums[-1].detach().contiguous()
        chances = output.softmax(0) if self.categorical else torch.ones_like(output)
        return (chances * self.factor).float(), chances.float() if self.categorical else None

    def actual(self):
        gradients, biases, _ = product(self.parts(), *self.of_output(), None, self.categorical)
        return [*gradients, *biases]


def assert_close(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert (one - other).abs().max() <= 1e-5 * max(1.0, other.abs().max().item())


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_it_equals_autograd_twice(sizes, categorical, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    problem = Problem(sizes, categorical, 3 * TILE)
    assert_close(problem.actual(), problem.expected())


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_FLAGS)
def test_it_is_right_on_processors_with_shorter_registers(name, monkeypatch):
    other = load((*FLAGS, *OTHER_FLAGS[name], "-O1"))
    assert other.cavia_curvature_lanes() == {"avx2": 8, "sse": 4}[name]
    monkeypatch.setattr(curvature, "library", lambda: other)
    for sizes in SIZES:
        problem = Problem(sizes, False)
        assert_close(problem.actual(), problem.expected())


def test_a_mixed_derivative_and_its_sums():
    problem = Problem((2, 7, 3), False)
    parts, (of_output, _) = problem.parts(), problem.of_output()
    parts |= {"change": [None] * 2, "bias_change": [None] * 2}  # nothing but log_std moves
    mixed, log_std = normal(3, 2 * TILE).float(), normal(3).float()
    gradients, biases, sums = product(parts, of_output, mixed, log_std, False)
    by_output = mixed * log_std[:, None]
    assert_close(
        [gradients[-1], biases[-1], sums], [by_output @ parts["inputs"][-1].T, by_output.sum(1), torch.zeros(3)]
    )
    _, _, sums = product(problem.parts(), of_output, mixed, None, False)
    _, moved = torch.func.jvp(output_of(problem), *own_and_change(problem))
    assert_close([sums], [(mixed * moved.float()).sum(1)])


def own_and_change(problem):
    """The weights and their change, for torch.func.jvp."""
    names = ("weights", "biases")
    own = tuple([value.detach() for value in getattr(problem, name)] for name in names)
    return own, (problem.change, problem.bias_change)


def output_of(problem):
    def output(weights, biases):
        problem.weights, problem.biases = weights, biases
        return problem.forward()[1][-1]

    return output


def test_the_tile_is_that_of_the_source():
    assert library().cavia_curvature_tile() == TILE
