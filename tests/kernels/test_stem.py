"""The fused stem against PyTorch's operations in double precision: values, gradients, and the odd cases."""

import pytest
import torch

from cavia.kernels import stem
from cavia.kernels.build import FLAGS, load
from cavia.kernels.stem import fused, plain

EPSILON = 1e-5
OTHER_FLAGS = {"avx2": ("-mno-avx512f", "-mprefer-vector-width=256"), "sse": ("-mno-avx",)}


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pictures(tasks, count, channels, side, seed=0):
    """Smooth in one direction, with jumps."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(tasks, count, channels, side, side, generator=generator).cumsum(-1).fmod(1)


def layers(width, channels, blocks=3, seed=0):
    """Random layers; γ has both signs and a zero."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    made = []
    for block in range(blocks):
        gamma = normal(width)
        gamma[block] = 0.0
        made.append((0.1 * normal(width, width if block else channels, 3, 3), gamma, 0.1 * normal(width)))
    return trained(made)


def trained(made, kind=torch.float32):
    return [tuple(part.detach().clone().to(kind).requires_grad_() for part in layer) for layer in made]


def both(function, x, made, gradient):
    """The output and the gradients of all parameters, in double precision."""
    out = function(x, made, EPSILON)
    gradients = torch.autograd.grad(out, [part for layer in made for part in layer], gradient.to(out.dtype))
    return [out.detach().double(), *(part.double() for part in gradients)]


def distance(actual, expected):
    return (actual - expected).norm() / expected.norm()


def errors(x, made, seed=1):
    """Relative distances to double precision of everything, by the fused stem and by PyTorch in single precision."""
    side = x.shape[-1] >> len(made)
    shape = (*x.shape[:2], len(made[0][1]), side, side)
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    exact = both(plain, x.double(), trained(made, torch.float64), gradient)
    return [
        torch.stack([distance(a, b) for a, b in zip(both(function, x, made, gradient), exact, strict=True)])
        for function in (fused, plain)
    ]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [28, 35, 42, 84])
@pytest.mark.parametrize("width", [16, 32, 48, 64])
def test_values_and_gradients_are_those_of_double_precision(width, side, channels):
    relative_errors, _ = errors(pictures(2, 3, channels, side), layers(width, channels), seed=3)
    # A place that rounding lets a max-pool or ReLU choose otherwise moves a gradient by a thousandth or so.
    assert relative_errors[0] < 1e-5
    assert relative_errors.max() < 2e-2
    assert relative_errors.median() < 1e-5


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("side", [16, 17, 18, 21])
def test_any_number_of_blocks_and_any_side(blocks, side):
    relative_errors, _ = errors(pictures(1, 2, 3, side), layers(16, 3, blocks))
    assert relative_errors.max() < 1e-4


@pytest.mark.parametrize("name", OTHER_FLAGS)
def test_processors_with_narrower_vectors(name, monkeypatch):
    library = load((*FLAGS, *OTHER_FLAGS[name], "-O1"))
    monkeypatch.setattr(stem, "library", lambda: library)
    for width, channels, side in ((16, 3, 21), (48, 1, 28), (32, 3, 30)):
        relative_errors, _ = errors(pictures(2, 3, channels, side), layers(width, channels))
        assert relative_errors.max() < 1e-4


@pytest.mark.parametrize("width", [16, 128])
def test_two_threads_and_several_tasks_agree_with_one_at_a_time(width):
    x, made = pictures(3, 5, 3, 28), layers(width, 3)
    gradient = torch.randn(3, 5, width, 3, 3, generator=torch.Generator().manual_seed(0))
    together = both(fused, x, made, gradient)
    alone = [both(fused, x[i : i + 1], made, gradient[i : i + 1]) for i in range(3)]
    assert torch.equal(together[0], torch.cat([part[0] for part in alone]))
    for i, value in enumerate(together[1:], 1):
        assert distance(value, sum(part[i] for part in alone)) < 1e-5
    for count in (2, 7):
        torch.set_num_threads(count)
        again = both(fused, x, made, gradient)
        assert torch.equal(again[0], together[0])
        assert all(distance(a, b) < 1e-5 for a, b in zip(again, together, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(both(fused, x, made, gradient), again, strict=True))


@pytest.mark.slow
def test_gradients_are_no_further_from_double_precision_than_pytorchs():
    """On many pictures rounding decides what some max-pools take, in PyTorch as in ours."""
    made = layers(32, 3)
    results = []
    for seed in range(5):
        x = torch.rand(1, 12, 3, 84, 84, generator=torch.Generator().manual_seed(seed))
        results.append(torch.stack([part[1:].norm() for part in errors(x, made)]))
    ours, theirs = torch.stack(results).median(0).values
    assert ours <= theirs


def test_one_picture_alone():
    relative_errors, _ = errors(pictures(1, 1, 3, 42), layers(32, 3))
    assert relative_errors.max() < 1e-4


def test_pictures_that_are_nearly_constant_keep_their_digits():
    x = 0.5 + 1e-3 * pictures(1, 4, 3, 42)
    ours, theirs = errors(x, layers(32, 3, blocks=1))
    assert (ours <= 2 * theirs + 1e-6).all()


def test_of_equal_places_the_first_is_taken():
    """Stripes two pixels wide: a window's places are equal in one direction. Behind ReLUs that are off all are zero."""
    x = torch.arange(28).div(2, rounding_mode="floor").remainder(3).float().expand(1, 2, 3, 28, 28).contiguous()
    x = x + torch.arange(2.0).view(1, 2, 1, 1, 1)
    made = layers(16, 3, blocks=3)
    with torch.no_grad():
        made[0][1].abs_()
        made[0][2].sub_(100)  # nothing passes the first ReLU
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(1, 2, 16, 3, 3, generator=generator)
    for ours, exact in zip(
        both(fused, x, made, gradient),
        both(plain, x.double(), trained(made, torch.float64), gradient),
        strict=True,
    ):
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4)
    one = layers(16, 3, blocks=1)
    gradient = torch.randn(1, 2, 16, 14, 14, generator=generator)
    ours = both(fused, x, one, gradient)
    exact = both(plain, x.double(), trained(one, torch.float64), gradient)
    torch.testing.assert_close(ours[2], exact[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_comes_out_where_pytorch_has_it(value):
    x, made = pictures(3, 2, 3, 28), layers(16, 3)
    x[1, 0, 2, 5, 5] = value
    ours, theirs = fused(x, made, EPSILON), plain(x, made, EPSILON)
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert ours[1].isnan().all()
    assert ours[::2].isfinite().all()
    for block, part in ((0, 0), (1, 0), (2, 0), (0, 1), (1, 2), (2, 1), (2, 2)):
        changed = trained(made)
        with torch.no_grad():
            changed[block][part].view(-1)[5] = value
        ours, theirs = fused(pictures(1, 2, 3, 28), changed, EPSILON), plain(pictures(1, 2, 3, 28), changed, EPSILON)
        assert torch.equal(ours.isfinite(), theirs.isfinite()), (block, part)
        assert ours.isfinite().all() == (part == 2 and block < 2 and value < 0)  # a ReLU takes −∞ away


def test_a_second_derivative_is_pytorchs():
    x, made = pictures(1, 2, 1, 16).double(), layers(16, 1, blocks=2)
    x = x.float()

    def curvature(function, kind):
        own = trained(made, kind)
        parts = [part for layer in own for part in layer]
        out = function(x.to(kind), own, EPSILON)
        slopes = torch.autograd.grad(out.square().sum(), parts, create_graph=True)
        return torch.autograd.grad(sum(slope.square().sum() for slope in slopes), parts)

    exact = curvature(plain, torch.float64)
    for ours, expected in zip(curvature(fused, torch.float32), exact, strict=True):
        assert (ours - expected).norm() <= 1e-4 * expected.norm()


def test_only_what_wants_a_gradient_gets_one():
    x, made = pictures(1, 2, 1, 16), layers(16, 1)
    made[0][0].requires_grad_(False)
    out = fused(x, made, EPSILON)
    out.sum().backward()
    assert made[0][0].grad is None
    assert made[1][0].grad is not None
    with torch.no_grad():
        assert torch.equal(fused(x, made, EPSILON), out)


def test_memory_formats_and_strides_do_not_matter():
    x, made = pictures(2, 3, 3, 28), layers(16, 3)
    last = x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    wide = torch.stack([x, x], -1)[..., 0]
    turned = [(w.contiguous(memory_format=torch.channels_last), g, b) for w, g, b in made]
    expected = fused(x, made, EPSILON)
    for other, weights in ((last, made), (wide, made), (x, turned)):
        assert torch.equal(fused(other, weights, EPSILON), expected)
