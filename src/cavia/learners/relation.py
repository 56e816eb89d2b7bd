"""Relation Networks: a learned similarity between a query and a class."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from cavia.errors import require_at_least, shown
from cavia.learners.inner import Fast
from cavia.learners.losses import PointLoss
from cavia.learners.metric import MetricLearner, features_of
from cavia.machine import require_memory
from cavia.models.base import ContextModel


class RelationNets(MetricLearner):
    """Relation Networks (Sung et al., 2018): a network g scores a query against each class's summed embedding.

    The score of class c is σ(g([Σ e(support of c), e(query)])), trained by squared errors towards 1 for the right class
    and 0 for the others. Predictions are g's numbers before the σ: logits, [T, N, ways].

    loss:     "score_mse", the paper's, or "cross_entropy".
    hidden:   widths of g's ReLU layers.
    features: size of an embedding; by default the model's.
    """

    kept_names = ("classes",)

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss = "score_mse",
        ways: int = 5,
        hidden: Sequence[int] = (64, 8),
        features: int | None = None,
    ):
        super().__init__(model, loss, ways)
        self.features, size = features, features_of(self, model, features)
        self.hidden = tuple(require_at_least("hidden", width, 1) for width in hidden) or (1,)
        widths = (*self.hidden, 1)
        weights = 2 * size * widths[0] + sum(a * b for a, b in pairwise(widths))
        require_memory(4 * weights, f"a relation network of hidden={shown(self.hidden)}, features={size}")
        # g's first layer reads a class and a query side by side: the sum of what it reads in each.
        self.reads_class, self.reads_query = nn.Linear(size, widths[0]), nn.Linear(size, widths[0], bias=False)
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise(widths))
        like = next(model.parameters(), torch.empty(0))
        for layer in (self.reads_class, self.reads_query, self.layers):
            layer.to(like.device, like.dtype)

    def _kept(self, embedded: Tensor, labels: Tensor) -> Fast:
        self.check_features(embedded, self.reads_query.in_features)
        return {"classes": labels.transpose(1, 2) @ embedded}  # [T, ways, F], sums over the class's points

    def _compare(self, embedded: Tensor, kept: Fast) -> Tensor:
        """Eq. (1) of Sung et al.: the relation of each query to each class, before the σ."""
        self.check_features(embedded, self.reads_query.in_features)
        h = self.reads_class(kept["classes"]).unsqueeze(1) + self.reads_query(embedded).unsqueeze(2)
        for layer in self.layers:
            h = layer(relu(h))  # [T, N, ways, width]
        return h.squeeze(-1)
