"""How much a call will allocate."""

import torch

from cavia.allowance import planned


def test_what_will_be_allocated_is_counted():
    like = torch.zeros(1)
    for function, args, kwargs in (
        (torch.empty, (3, 4), {}),
        (torch.zeros, ((3, 4),), {}),
        (torch.randn, ([3, 4],), {}),
        (torch.ones, (), {"size": (3, 4)}),
        (torch.empty, (torch.Size([5]),), {}),
        (torch.full, ((3, 4), 2.0), {}),
        (torch.full, (), {"size": (3, 4), "fill_value": 2.0}),
        (torch.randint, (5, (2, 3)), {}),
        (torch.randint, (1, 5, (2, 3)), {}),
        (torch.arange, (7,), {}),
        (torch.arange, (2, 7), {}),
        (torch.arange, (2, 8, 2.5), {}),
        (torch.arange, (), {"end": 4}),
        (torch.arange, (2.0, 7.5), {"step": 2}),
        (torch.linspace, (0, 1, 9), {}),
        (torch.linspace, (0, 1), {"steps": 9}),
        (torch.Tensor.new_zeros, (like, 3, 4), {}),
        (torch.Tensor.new_full, (like, (3, 4), 1.0), {}),
        (torch.empty_strided, ((3, 4), (4, 1)), {}),
    ):
        assert planned(function, args, kwargs) == function(*args, **kwargs).numel()
    assert planned(torch.eye, (3,), {}) >= 9
    assert planned(torch.eye, (3, 4), {}) >= 12
    assert planned(torch.randperm, (3,), {}) >= 3
    assert planned(torch.sin, (like,), {}) is None
