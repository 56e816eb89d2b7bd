"""Methods that classify by nearness to the support points in a learned space; nothing moves by gradient."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cavia.errors import CaviaError, require_at_least, require_positive, shown
from cavia.kinds import checked
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner
from cavia.learners.door import fitting
from cavia.learners.inner import Fast
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel, NormedModel
from cavia.tasks.points import Inputs, as_inputs, lead, one_tensor, shape

POINTS, LABELS = "points", "labels"  # what is kept of the support set, by name


class MetricLearner(Learner):
    """Embeds points with its model and compares; labels are whole numbers from 0 to ways − 1.

    model: the embedding, x [T, N, ...] → [T, N, F], for instance ConvNet(ways=0, context=0). A context stays at 0.
    ways:  the number of classes of a task.

    Where the model normalises points by the statistics of those at hand, support and query points are embedded
    together, as both papers do: apart, five support pictures would be normalised in another way than their queries.
    The support points themselves are then what `adapt` keeps.
    """

    inner_steps = 1  # reading the support set once more would change nothing

    def __init__(self, model: ContextModel, loss: str | PointLoss = "cross_entropy", ways: int = 5):
        super().__init__(model, loss)
        self.ways = require_at_least("ways", ways, 2)

    kept_names: ClassVar[tuple[str, ...]]  # of what `_kept` returns

    @property
    def keeps(self) -> tuple[str, ...]:
        """The names of what adapts."""
        return (POINTS, LABELS) if self.embeds_together else self.kept_names

    @property
    def embeds_together(self) -> bool:
        """Whether a query's embedding depends on other points."""
        return isinstance(self.model, NormedModel) and not self.model.keeps_statistics

    @checked
    def embed(self, x: Inputs, statistics: Tensor | None = None) -> Tensor:
        """x [T, N, ...] → [T, N, F]; statistics: what a `NormedModel` normalises by, if not by its own."""
        if statistics is not None and not isinstance(self.model, NormedModel):
            raise CaviaError(f"{type(self.model).__name__} has no norms to give statistics to, got {shown(statistics)}")
        given: Any = () if statistics is None else (statistics,)
        x = fitting(self, as_inputs("x", x))
        embedded: Tensor = self.model(x, self._no_context(x), *given)
        return embedded.flatten(2)

    def _no_context(self, x: Inputs) -> Tensor:
        return next(self.parameters()).new_zeros(lead(x).shape[0], self.model.context)

    def infer(self, x: Inputs, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        """Support points x [T, K, ...] with labels y [T, K] → what queries are compared with; no steps: as if none."""
        self.check_targets(y)
        if steps == 0 and start is not None:
            return start
        labels = y.unsqueeze(-1) == torch.arange(self.ways, device=y.device)  # [T, K, ways]
        labels = labels.to(next(self.parameters()).dtype)
        if mask is not None:
            labels = labels * mask.unsqueeze(-1)
        labels = labels if steps else torch.full_like(labels, 1 / self.ways)
        if self.embeds_together:
            return Adapted.of({POINTS: one_tensor(x, type(self).__name__), LABELS: labels})
        statistics = None
        if self.keeps_statistics:
            statistics = self.model.statistics(x, self._no_context(x))  # type: ignore[operator]
        return Adapted.of(self._kept(self.embed(x), labels), statistics)

    def check_targets(self, y: Tensor) -> None:
        """Raise unless y [T, K] are labels from 0 to ways − 1."""
        check_labels(self, y, self.ways)

    def check_features(self, embedded: Tensor, features: int) -> None:
        """Raise unless the embeddings [T, N, F] are of the size that the learner was built for."""
        if embedded.shape[-1] != features:
            raise CaviaError(
                f"{type(self).__name__} was built for {features} features, the model gives {shape(embedded)}; "
                f"say features={embedded.shape[-1]}"
            )

    def respond(self, x: Inputs, adapted: Adapted) -> Tensor:
        """Logits [T, N, ways] of points x [T, N, ...]."""
        return self.compared(x, adapted, {})

    def compared(self, x: Inputs, adapted: Adapted, more: Fast) -> Tensor:
        """Logits [T, N, ways] of points x [T, N, ...]; more: given to `_compare` beside what was kept."""
        if any(value.shape[0] != lead(x).shape[0] for value in adapted.values()):
            raise CaviaError(f"x {shape(x)} holds {lead(x).shape[0]} tasks but what adapted {len(adapted)}")
        if set(adapted.names) != set(self.keeps):
            raise CaviaError(
                f"{type(self).__name__} keeps {', '.join(self.keeps)}; it was given {', '.join(adapted.names)}"
            )
        if not self.embeds_together:
            return self._compare(self.embed(x, self.statistics_in(adapted)), dict(adapted.items()) | more)
        points, x = adapted[POINTS], one_tensor(x, type(self).__name__)
        if points.shape[2:] != x.shape[2:]:
            raise CaviaError(f"x {shape(x)} must have points like those that adapted, {shape(points)}")
        support, queries = self.embed(torch.cat([points, x], 1)).split([points.shape[1], x.shape[1]], 1)
        return self._compare(queries, self._kept(support, adapted[LABELS]) | more)

    @abstractmethod
    def _kept(self, embedded: Tensor, labels: Tensor) -> Fast:
        """What is kept of support points [T, K, F] with label weights [T, K, ways]."""

    @abstractmethod
    def _compare(self, embedded: Tensor, kept: Fast) -> Tensor:
        """Logits [T, N, ways] of query points [T, N, F]."""


def check_labels(learner: Learner, y: Tensor, ways: int) -> None:
    """Raise unless y [T, K] are labels from 0 to ways − 1."""
    if y.ndim != 2 or y.is_floating_point() or y.is_complex():
        raise CaviaError(
            f"{type(learner).__name__} needs whole-number labels [tasks, points], got {y.dtype} {shape(y)}"
        )
    checked = y.numel() and not torch.compiler.is_compiling()  # a graph cannot look at values
    if checked and not 0 <= int(y.min()) <= int(y.max()) < ways:
        raise CaviaError(f"labels must be from 0 to {ways - 1} (ways={ways}), got {int(y.min())} to {int(y.max())}")


def features_of(learner: Learner, model: ContextModel, features: int | None) -> int:
    """The size of an embedding: as given, or the model's number of outputs."""
    size = getattr(model, "outputs", None) if features is None else features
    if size is None:
        raise CaviaError(
            f"{type(learner).__name__} must know how many numbers {type(model).__name__} gives a point; say features="
        )
    return require_at_least("features", size, 1)


class ProtoNets(MetricLearner):
    """Prototypical Networks (Snell et al., 2017): the closer to the mean of a class's support points, the likelier.

    >>> learner = ProtoNets(ConvNet(ways=0, image=28, channels=1, context=0), ways=5)
    >>> adapted = learner.adapt(torch.rand(3, 10, 1, 28, 28), torch.arange(10).expand(3, 10) % 5)
    >>> learner.predict(torch.rand(3, 7, 1, 28, 28), adapted).shape
    torch.Size([3, 7, 5])
    """

    kept_names = ("prototypes",)

    def _kept(self, embedded: Tensor, labels: Tensor) -> Fast:
        sums = labels.transpose(1, 2) @ embedded  # [T, ways, F]
        return {"prototypes": sums / labels.sum(1).clamp(min=1e-12).unsqueeze(-1)}

    def _compare(self, embedded: Tensor, kept: Fast) -> Tensor:
        """−‖e − p‖², the squared Euclidean distance to each prototype."""
        prototypes = kept["prototypes"]
        products = embedded @ prototypes.transpose(1, 2)  # [T, N, ways]
        return 2 * products - embedded.square().sum(-1, keepdim=True) - prototypes.square().sum(-1).unsqueeze(1)


class MatchingNets(MetricLearner):
    """Matching Networks (Vinyals et al., 2016): each support point votes for its class, weighted by its similarity.

    scale: factor of the cosine similarity before the softmax; the original has 1.
    """

    kept_names = ("embeddings", LABELS)

    def __init__(self, model: ContextModel, loss: str | PointLoss = "cross_entropy", ways: int = 5, scale: float = 1.0):
        super().__init__(model, loss, ways)
        self.scale = require_positive("scale", scale)

    def _kept(self, embedded: Tensor, labels: Tensor) -> Fast:
        return {"embeddings": normalize(embedded, dim=-1), LABELS: labels}

    def _compare(self, embedded: Tensor, kept: Fast) -> Tensor:
        """The logarithm of each class's share of the votes."""
        similarity = normalize(embedded, dim=-1) @ kept["embeddings"].transpose(1, 2)  # [T, N, K], cosines
        no_vote = kept[LABELS].sum(-1).unsqueeze(1) == 0  # padding
        # Where no point of a task votes, softmax is NaN, and the votes are none: all classes are as likely.
        votes = (self.scale * similarity).masked_fill(no_vote, -torch.inf).softmax(-1).masked_fill(no_vote, 0.0)
        return (votes @ kept[LABELS]).clamp(min=1e-12).log()
