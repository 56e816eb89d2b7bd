import pytest
import torch
from torch import nn

import cavia


def test_context_enters_as_if_concatenated_to_the_input():
    torch.manual_seed(0)
    model = cavia.MLP(3, 2, hidden=(7,), context=4)
    x, context = torch.randn(5, 6, 3), torch.randn(5, 4)
    first, last = model.layers
    joined = torch.cat([x, context.unsqueeze(1).expand(5, 6, 4)], dim=-1)
    expected = last(nn.functional.linear(joined, first.weight, first.bias).relu())
    torch.testing.assert_close(model(x, context), expected)


@pytest.mark.parametrize("at", [1, 2, (0, 2), [2, 1, 0]])
def test_context_at_other_layers(at):
    torch.manual_seed(0)
    model = cavia.MLP(3, 2, hidden=(7, 6), context=4, at=at)
    x, context = torch.randn(5, 6, 3), torch.randn(5, 4)
    layers = (at,) if isinstance(at, int) else tuple(at)
    h = x
    for i, layer in enumerate(model.layers):
        h = h.relu() if i else h
        h = torch.cat([h, context.unsqueeze(1).expand(5, 6, 4)], dim=-1) if i in layers else h
        h = nn.functional.linear(h, layer.weight, layer.bias)
    torch.testing.assert_close(model(x, context), h)
    torch.testing.assert_close(model.head(model.stem(x), context), h)


def test_the_layers_start_like_plain_linear_layers_of_that_size():
    torch.manual_seed(3)
    model = cavia.MLP(1, 1, hidden=(40, 40), context=5)
    torch.manual_seed(3)
    plain = [nn.Linear(6, 40), nn.Linear(40, 40), nn.Linear(40, 1)]
    for ours, theirs in zip(model.layers, plain, strict=True):
        assert torch.equal(ours.weight, theirs.weight)


def test_film_scales_and_shifts_each_channel():
    torch.manual_seed(0)
    film = cavia.FiLM(context=3, channels=2)
    h, context = torch.randn(4, 5, 2, 6, 6), torch.randn(4, 3)
    scale_shift = film.to_film(context)  # γ of both channels, then β of both
    expected = torch.empty_like(h)
    for task in range(4):
        for channel in range(2):
            scale, shift = scale_shift[task, channel], scale_shift[task, 2 + channel]
            expected[task, :, channel] = scale * h[task, :, channel] + shift
    torch.testing.assert_close(film(h, context), expected)
    assert film(torch.randn(4, 5, 2), context).shape == (4, 5, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": 0}, "inputs must be at least 1, got 0"),
        ({"hidden": (40, 0)}, "hidden must be at least 1, got 0"),
        ({"context": -1}, "context must be at least 0, got -1"),
        ({"context": 2.5}, "context must be a whole number"),
        ({"at": 3}, "at must name layers from 0 to 2"),
        ({"at": ()}, "at must name layers"),
        ({"init": "hee"}, "unknown init 'hee'; did you mean 'he'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.MLP(**{"inputs": 1, "outputs": 1} | arguments)


def test_with_he_weights_the_signal_keeps_its_size():
    torch.manual_seed(0)
    sizes = {}
    for init in ("torch", "he"):
        model = cavia.MLP(30, 1, hidden=(200,) * 6, context=2, init=init)
        kept = []
        model.layers[-1].register_forward_pre_hook(
            lambda layer, given, kept=kept: kept.append(given[0].square().mean())
        )
        model(torch.randn(1, 100, 30), torch.zeros(1, 2))
        sizes[init] = kept[0].item()
    assert 0.3 < sizes["he"] < 3
    assert sizes["torch"] < 0.1 * sizes["he"]


def test_inputs_that_do_not_fit_are_named():
    with pytest.raises(cavia.CaviaError, match=r"takes x \[T, N, 2\], got x of shape \[3, 4, 1\]"):
        cavia.MLP(2, 1)(torch.zeros(3, 4, 1), torch.zeros(3, 5))


def test_xavier_starts_all_layers_within_glorots_bound_and_without_biases():
    torch.manual_seed(0)
    model = cavia.MLP(20, 6, hidden=(100, 100), context=50, init="xavier")
    for layer in model.layers:
        bound = (6 / sum(layer.weight.shape)) ** 0.5
        assert 0.95 * bound < layer.weight.abs().max() <= bound
        assert not layer.bias.any()
