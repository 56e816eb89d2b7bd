"""LEO, CAVIA and others on pretrained embeddings: those of our own ProtoNets network."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.evaluation.evaluate import evaluate, evaluating
from cavia.learners.base import Learner
from cavia.learners.metric import MetricLearner, ProtoNets
from cavia.learners.saving import load
from cavia.models.convnet import ConvNet
from cavia.models.mlp import MLP
from cavia.paper.experiment import Cell, Data, NotTrained, Settings
from cavia.paper.fewshot.summary import has_learned
from cavia.paper.methods import METHODS
from cavia.paper.schema import CellResult, Claim, Row, Summary
from cavia.paper.showing import cell, iterations, table
from cavia.paper.statistics import above, best, difference, grouped, scores, text
from cavia.pictures.datasets import MINI_IMAGENET
from cavia.pictures.episodes import Episodes
from cavia.tasks.batch import TaskBatch, TaskFamily

UNTRAINED = "untrained"
# Method → the inner learning rates to try; the best on validation tasks is reported.
TRIED: dict[str, tuple[float, ...]] = {
    "CAVIA": (0.1, 1.0),
    "MAML": (0.01, 0.1),
    "ProtoNets": (1.0,),
    "VERSA": (1.0,),
    "LEO": (0.1, 1.0),
}


@dataclass(frozen=True)
class EmbeddingsSettings(Settings):
    """Networks on embeddings are small; the embedding network stays frozen."""

    known: ClassVar = {"methods": tuple(TRIED)}

    iterations: int = 10_000
    methods: tuple[str, ...] = tuple(TRIED)
    network: str = "runs/tuned/table3/cells/ProtoNets-filters=32-ways=5-shots=1-seed=0/model.cavia"
    ways: int = 5
    shots: tuple[int, ...] = (1,)
    queries: int = 15  # per class
    image: int = 84
    tasks_per_batch: int = 8
    hidden: tuple[int, ...] = (64,)
    context: int = 100
    features: int = 64  # for methods that classify features: a linear layer on the embeddings
    inner_steps: int = 2
    lr: float = 1e-3
    cooldown: float = 0.3
    clip: float = 10.0
    every: int = 500
    validation_tasks: int = 200
    test_tasks: int = 1000


class EmbeddedEpisodes(TaskFamily):
    """Episodes of pictures embedded by a trained network: x is [F].

    All pictures of a task are embedded in one batch, as in `ProtoNets`, because its norms may use batch statistics.
    """

    def __init__(self, episodes: Episodes, network: MetricLearner) -> None:
        self.episodes, self.network = episodes, network
        self.support, self.query, self.at_a_time = episodes.support, episodes.query, episodes.at_a_time
        self.ways = episodes.ways

    @property
    def settings(self) -> dict[str, Any]:
        return {"episodes": self.episodes.settings, "network": self.network.version}

    @property
    def size(self) -> int:
        """F, the size of an embedding."""
        one = self.episodes.sample(1, None, None, torch.Generator().manual_seed(0))
        return self._embedded(one.support_x).shape[-1]

    def sample(
        self, tasks: int, support: int | None, query: int | None, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        batch = self.episodes.sample(tasks, support, query, generator, split)
        points = [batch.support_y.shape[1], batch.query_y.shape[1]]
        parts = [self._embedded(torch.cat([one.support_x, one.query_x], 1)) for one in batch.split(1)]
        support_x, query_x = torch.cat(parts).split(points, 1)
        return TaskBatch(support_x, batch.support_y, query_x, batch.query_y, attributes=batch.attributes)

    def _embedded(self, x: Any) -> Tensor:
        with torch.no_grad(), evaluating(self.network):
            return self.network.embed(x)


def tasks(settings: EmbeddingsSettings, cell: Cell, data: Data) -> EmbeddedEpisodes:
    images = MINI_IMAGENET.open(data.root, data.synthetic, settings.image)
    episodes = Episodes(images, settings.ways, cell["shots"], settings.queries, **MINI_IMAGENET.episodes or {})
    return EmbeddedEpisodes(episodes, _network(settings, episodes))


def _network(settings: EmbeddingsSettings, episodes: Episodes) -> MetricLearner:
    """The trained network; the setting "untrained" gives random weights, for a first look."""
    if settings.network == UNTRAINED:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = ConvNet(0, 16, episodes.size, episodes.channels, context=0)
            return ProtoNets(model, ways=episodes.ways)
    if not Path(settings.network).exists():
        raise NotTrained(
            f"there is no trained network {settings.network}: train it by `cavia run table3 --tuned --set "
            f'methods=ProtoNets --set shots=1`, or name another by --set network=…, or "{UNTRAINED}"'
        )
    network = load(settings.network)
    if not isinstance(network, MetricLearner):
        raise CaviaError(f"network must be a learner that embeds, such as ProtoNets, got {type(network).__name__}")
    return network


def learner(settings: EmbeddingsSettings, cell: Cell, family: EmbeddedEpisodes) -> Learner:
    method = METHODS[cell["method"]]
    if method.head:
        model = MLP(family.size, settings.ways, settings.hidden, settings.context if method.context else 0)
    else:
        model = MLP(family.size, settings.features, (), context=0)
    return method(
        model, "cross_entropy", inner_lr=cell["inner_lr"], inner_steps=settings.inner_steps, ways=settings.ways
    )


def accuracy(learner: Learner, family: EmbeddedEpisodes, settings: EmbeddingsSettings, cell: Cell) -> dict[str, Any]:
    result = evaluate(learner, family, settings.test_tasks)
    return {"scores": {"accuracy": result.scores[-1:].tolist()}, "probes": {"data": family.episodes.images.settings}}


def cells(settings: EmbeddingsSettings, seeds: int) -> list[Cell]:
    return [
        Cell({"method": method, "shots": shots, "inner_lr": rate, "seed": seed})
        for shots, method in product(settings.shots, settings.methods)
        for rate, seed in product(TRIED[method], range(seeds))
    ]


def summarise(settings: EmbeddingsSettings, results: list[CellResult]) -> Summary:
    groups = {key: _best(results, *key) for key in product(settings.methods, settings.shots)}
    rows: list[Row] = [
        {"label": method, "cells": [_cell(groups[method, shots]) for shots in settings.shots]}
        for method in settings.methods
    ]
    caption = (
        f"Accuracy (%) on {settings.test_tasks} {settings.ways}-way tasks of unseen classes. All methods use the same "
        f"embeddings of the pictures, by one network ({settings.network}). Notes name the inner rate, the best on "
        "validation tasks if several were tried."
    )
    claims: list[Claim] = []
    for shots in settings.shots:
        ours, theirs = groups.get(("CAVIA", shots)), groups.get(("LEO", shots))
        if ours and theirs and has_learned(settings.ways, scores(ours, "accuracy"), scores(theirs, "accuracy")):
            gap = difference(100 * scores(ours, "accuracy"), 100 * scores(theirs, "accuracy"))
            claims.append({
                "claim": f"On the same embeddings, {shots}-shot, CAVIA's accuracy is above LEO's.",
                "holds": above(gap),
                "evidence": f"CAVIA − LEO on the same tasks: {text(gap, 2)}",
            })  # fmt: skip
    columns = [f"{shots}-shot" for shots in settings.shots]
    return {"tables": [table(caption, "accuracy", 2, "Task", columns, rows, higher=True)], "claims": claims}


def _best(results: list[CellResult], method: str, shots: int) -> list[CellResult]:
    groups = grouped(results, lambda one: one["inner_lr"], method=method, shots=shots)
    return best(groups.values(), higher_is_better=True)


def _cell(group: list[CellResult]) -> Any:
    if not group:
        return None
    rate = f"inner rate {group[0]['inner_lr']:g}, " if METHODS[group[0]["method"]].has_rate else ""
    return cell(scores(group, "accuracy"), None, 2, rate + iterations(group), higher_is_better=True, unit=100)
