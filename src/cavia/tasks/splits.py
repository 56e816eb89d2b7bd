"""Splits tasks into training, validation and test tasks; no task is in two splits."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from cavia.errors import CaviaError, require_one_of
from cavia.tasks.batch import SPLITS, seeded_generator


def split_names(
    known: Sequence[str], splits: Sequence[float] | Mapping[str, Sequence[Any]], seed: int, dropped: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Split → names of its tasks, by shares or as given; no task is in two splits."""
    if isinstance(splits, Mapping):
        return _given_splits(known, splits, dropped)
    shares = [float(share) for share in splits]
    if len(shares) != len(SPLITS) or min(shares) < 0 or not 0.999 < sum(shares) < 1.001 or shares[0] == 0:
        raise CaviaError(f"splits must be three shares for train, val and test that add up to 1, got {tuple(splits)}")
    order = torch.randperm(len(known), generator=seeded_generator(seed, "splits")).tolist()
    counts = [max(1, round(share * len(known))) if share else 0 for share in shares[1:]]
    if sum(counts) >= len(known):
        raise CaviaError(f"{len(known)} tasks are too few for the splits {tuple(splits)}; at least {sum(counts) + 1}")
    val, test = order[: counts[0]], order[counts[0] : sum(counts)]
    parts = {"train": order[sum(counts) :], "val": val, "test": test}
    return {split: [known[i] for i in sorted(part)] for split, part in parts.items()}


def _given_splits(
    known: Sequence[str], splits: Mapping[str, Sequence[Any]], dropped: Sequence[str]
) -> dict[str, list[str]]:
    for split in splits:
        require_one_of("split", split, SPLITS)
    names = {split: [str(name) for name in splits.get(split, ())] for split in SPLITS}
    seen: set[str] = set()
    there = {*known, *dropped}
    for split, chosen in names.items():
        for name in chosen:
            if name not in there:
                raise CaviaError(f"split {split!r} names the task {name!r}, which is not there")
            if name in seen:
                raise CaviaError(f"the task {name!r} is in two splits")
            seen.add(name)
    left = [name for name in known if name not in seen]
    if left:
        some = ", ".join(map(repr, left[:5]))
        raise CaviaError(f"{len(left)} tasks are in no split: {some}; splits must name every task")
    gone = set(dropped)
    return {split: [name for name in chosen if name not in gone] for split, chosen in names.items()}
