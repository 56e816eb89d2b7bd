"""Numbers of tasks and points rounded up, so that many numbers share one compiled graph."""

import torch
from torch import Tensor


def rounded(number: int) -> int:
    """The next of 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, … that is not smaller."""
    power = 1 << (number - 1).bit_length()
    between = power * 3 // 4
    return between if power > 8 and number <= between else power


def fillers(value: Tensor, tasks: int, points: int | None = None) -> list[tuple[Tensor, int]]:
    """What pads value [T, N, ...] to [tasks, points, ...]: zeros, and the axis to append them to.

    points: None leaves the second axis as it is.
    """
    blocks, shape = [], list(value.shape)
    for axis, size in ((1, points), (0, tasks)):
        if size is not None and size > shape[axis]:
            more = [*shape[:axis], size - shape[axis], *shape[axis + 1 :]]
            shape[axis] = size
            with torch.inference_mode(False):
                blocks.append((torch.zeros(more, dtype=value.dtype, device=value.device), axis))
    return blocks


def first_points(tasks: int, points: int, count: int, device: torch.device) -> Tensor:
    """A mask [tasks, points] of the first `count` points of every task."""
    with torch.inference_mode(False):
        return (torch.arange(points, device=device) < count).expand(tasks, points).contiguous()
