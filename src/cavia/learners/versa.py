"""VERSA: a network writes a distribution over the weights of a task's last layer, in one pass."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, require_at_least, shown
from cavia.kinds import checked
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner
from cavia.learners.inner import Fast
from cavia.learners.losses import PointLoss, mean_over_points, without_padding
from cavia.learners.metric import MetricLearner, features_of
from cavia.machine import require_memory
from cavia.models.base import ContextModel
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import Inputs, lead, one_tensor, shape

MEAN, LOG_VARIANCE, NOISE = "mean", "log_variance", "noise"
NARROW = -6.0  # the logarithm of the variance at the start


class VERSA(MetricLearner):
    """VERSA (Gordon et al., 2019): infers a distribution over a class's weights from its mean embedding.

    A class's weights ψ are normally distributed, q(ψ) = N(μ, σ²), with μ and σ from a network that reads its mean
    embedding. Predictions are the logarithm of the mean probability over samples of ψ; the outer loop maximises it for
    the query labels. In training samples are new for each task; elsewhere they are always the same ones.

    hidden:   widths of the ReLU layers of the network that writes the distribution.
    samples:  of ψ.
    features: size of an embedding; by default the model's.
    """

    kept_names = (MEAN, LOG_VARIANCE)
    draws = True

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss = "cross_entropy",
        ways: int = 5,
        hidden: Sequence[int] = (64,),
        samples: int = 10,
        features: int | None = None,
    ):
        super().__init__(model, loss, ways)
        self.features, size = features, features_of(self, model, features)
        self.hidden = tuple(require_at_least("hidden", width, 1) for width in hidden)
        self.samples = require_at_least("samples", samples, 1)
        require_memory(4 * samples * ways * (size + 1), f"samples={samples} of {ways} classes")
        like = next(model.parameters(), torch.empty(0))
        self.writer = written_network((size, *self.hidden, 2 * (size + 1))).to(like.device, like.dtype)
        fixed = torch.randn(samples, ways, size + 1, generator=torch.Generator().manual_seed(0))
        self.noise: Tensor
        self.register_buffer("noise", fixed.to(like), persistent=False)

    def _kept(self, embedded: Tensor, labels: Tensor) -> Fast:
        self.check_features(embedded, self.noise.shape[-1] - 1)
        means = labels.transpose(1, 2) @ embedded / labels.sum(1).clamp(min=1e-12).unsqueeze(-1)  # [T, ways, F]
        mean, log_variance = self.writer(means).chunk(2, -1)  # each [T, ways, F + 1]: weights, and a bias
        return {MEAN: mean, LOG_VARIANCE: log_variance}

    def _compare(self, embedded: Tensor, kept: Fast) -> Tensor:
        """log 1/S Σₛ p(y | x, ψₛ), the predictive likelihood of Eq. (3) of Gordon et al., for each class."""
        weights = sampled(kept, kept.get(NOISE, self.noise.unsqueeze(0)))  # [T, S, ways, F + 1]
        logits = embedded.unsqueeze(1) @ weights[..., :-1].mT + weights[..., -1].unsqueeze(2)  # [T, S, N, ways]
        return logits.log_softmax(-1).logsumexp(1) - math.log(self.samples)

    @checked
    def forward(self, batch: TaskBatch) -> Tensor:
        """Each task's query loss, [T]; in training with fresh samples."""
        if not self.training:
            return self.task_losses(batch)
        self.check_query(batch)
        adapted = self._infer(batch.support_x, batch.support_y, batch.support_mask, 1, None)
        noise = torch.randn(len(batch), *self.noise.shape, dtype=self.noise.dtype, device=self.noise.device)
        x = without_padding(batch.query_x, batch.query_mask)
        return self.mean_loss(self.compared(x, adapted, {NOISE: noise}), batch.query_y, batch.query_mask)


class VERSARegression(Learner):
    """VERSA for regression: y = ψ·[h(x), 1], with a distribution over ψ that a network writes from the support points.

    An encoder reads each support point (x, y); the mean over points gives μ and σ of ψ. The outer loop maximises the
    predictive likelihood of the query points, log 1/S Σₛ N(y; ψₛ·h, s²), with samples of ψ and a learned noise s.
    Predictions are the mean, μ·h. For squared errors only.

    model:   h, x [T, N, ...] → [T, N, F]; a context stays at 0.
    inputs:  length of a point's x.
    outputs: length of a point's y.
    encoder: widths of the encoder's ReLU layers.
    samples: of ψ, in training.
    """

    inner_steps = 1  # reading the support set once more would change nothing
    draws = True

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss = "mse",
        inputs: int = 1,
        outputs: int = 1,
        encoder: Sequence[int] = (64, 64),
        samples: int = 10,
        features: int | None = None,
    ):
        super().__init__(model, loss)
        if loss != "mse":
            raise CaviaError(f'VERSARegression predicts by a normal distribution: loss must be "mse", got {loss!r}')
        self.inputs, self.outputs = require_at_least("inputs", inputs, 1), require_at_least("outputs", outputs, 1)
        self.encoder = tuple(require_at_least("encoder", width, 1) for width in encoder)
        self.samples = require_at_least("samples", samples, 1)
        self.features, size = features, features_of(self, model, features)
        require_memory(4 * samples * outputs * (size + 1), f"samples={samples} of {outputs} outputs")
        like = next(model.parameters(), torch.empty(0))
        sizes = (inputs + outputs, *self.encoder, 2 * outputs * (size + 1))
        self.writer = written_network(sizes).to(like.device, like.dtype)
        self.log_noise = nn.Parameter(like.new_zeros(()))

    def infer(self, x: Inputs, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        """x [T, K, inputs] and y [T, K, outputs] → μ and log σ² of ψ, each [T, outputs, F + 1]."""
        x = one_tensor(x, "VERSARegression")
        if steps == 0 and start is not None:
            return start
        if x.shape[2:] != (self.inputs,) or y.shape[2:] != (self.outputs,):
            raise CaviaError(
                f"this VERSARegression reads x [T, K, {self.inputs}] and y [T, K, {self.outputs}], "
                f"got {shape(x)} and {shape(y)}"
            )
        own = self.log_noise.dtype
        encoded = torch.cat([x.to(own), without_padding(y, mask).to(own)], -1)
        *layers, last = self.writer
        for layer in layers:
            encoded = layer(encoded)  # [T, K, encoder[-1]]
        if mask is None:
            mean = encoded.mean(1) if x.shape[1] else encoded.sum(1)
        else:
            mean = without_padding(encoded, mask).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        mean = mean if steps else torch.zeros_like(mean)
        written = last(mean).unflatten(-1, (2, self.outputs, -1))  # the linear layer commutes with the mean
        return Adapted.of({MEAN: written[:, 0], LOG_VARIANCE: written[:, 1]})

    def _features(self, x: Inputs) -> Tensor:
        """h(x) and a 1: [T, N, F + 1]."""
        tasks = lead(x).shape[0]
        h = self.model(x, self.log_noise.new_zeros(tasks, self.model.context)).flatten(2)
        return torch.cat([h, torch.ones_like(h[..., :1])], -1)

    def respond(self, x: Inputs, adapted: Adapted) -> Tensor:
        h, mean = self._features(x), adapted[MEAN]
        if mean.shape != (h.shape[0], self.outputs, h.shape[2]):
            wanted = [h.shape[0], self.outputs, h.shape[2]]
            raise CaviaError(f"{MEAN!r} must be {wanted} for x {shape(x)}, got {shape(mean)}")
        return h @ mean.mT

    @checked
    def forward(self, batch: TaskBatch) -> Tensor:
        """−log 1/S Σₛ N(y; ψₛ·h, s²) of each task's query points, the mean over them: [T]."""
        self.check_query(batch)
        adapted = self._infer(batch.support_x, batch.support_y, batch.support_mask, 1, None)
        h, y = self._features(without_padding(batch.query_x, batch.query_mask)), batch.query_y
        y = without_padding(y, batch.query_mask).to(h.dtype)
        noise = torch.randn(len(h), self.samples, self.outputs, h.shape[2], dtype=h.dtype, device=h.device)
        weights = sampled(dict(adapted.items()), noise if self.training else torch.zeros_like(noise))
        predicted = h.unsqueeze(1) @ weights.mT  # [T, S, N, outputs]
        if predicted.shape[2:] != y.shape[1:]:
            raise CaviaError(f"targets must be {list(predicted.shape[2:])} for each task, got {list(y.shape[1:])}")
        squares = (predicted - y.unsqueeze(1)).square() / (2 * self.log_noise.exp())  # s² = exp(log_noise)
        likelihoods = -(squares + self.log_noise / 2 + math.log(2 * math.pi) / 2).sum(-1)  # [T, S, N]
        return mean_over_points(math.log(self.samples) - likelihoods.logsumexp(1), batch.query_mask)


def written_network(widths: Sequence[int]) -> nn.Sequential:
    """ReLU layers of these widths; the last writes means and, near NARROW at the start, logarithms of variances."""
    require_memory(4 * sum(a * b for a, b in pairwise(widths)), f"layers of {shown(tuple(widths))}")
    layers = [layer for sizes in pairwise(widths) for layer in (nn.Linear(*sizes), nn.ReLU())][:-1]
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        half = widths[-1] // 2
        last.weight[half:] *= 0.1
        last.bias[half:] = NARROW
    return nn.Sequential(*layers)


def sampled(kept: Fast, noise: Tensor) -> Tensor:
    """ψ = μ + σ ε: mean and log variance [T, ...], noise [T or 1, S, ...] → [T, S, ...]."""
    return kept[MEAN].unsqueeze(1) + (kept[LOG_VARIANCE] / 2).exp().unsqueeze(1) * noise
