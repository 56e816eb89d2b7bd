"""LEO: a task adapts in a space of codes, one for each class, that are decoded to the weights of a classifier."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cavia.errors import CaviaError, require_at_least, require_positive
from cavia.kinds import checked
from cavia.learners.adapted import Adapted
from cavia.learners.gradient import GradientLearner
from cavia.learners.inner import Fast
from cavia.learners.losses import PointLoss, without_padding
from cavia.learners.metric import check_labels, features_of
from cavia.machine import require_memory
from cavia.models.base import ContextModel
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import Inputs, lead

CODES, NOISE = "codes", "noise"


class LEO(GradientLearner):
    """Latent embedding optimisation (Rusu et al., 2019), for classification: gradient steps on a code for each class.

    An encoder reads every pair of support points and writes a normal distribution for each class's code z; a decoder
    writes the class's weights w from it; the logit of a query is w·e(x). In training, codes and weights are drawn from
    their distributions; elsewhere they are the means. `adapted["noise"]` is what was drawn for w, else 0.

    model:    the embedding e, x [T, N, ...] → [T, N, F], as for `ProtoNets`; a context stays at 0.
    inner_lr: initial learning rate of the codes; the outer loop trains it.
    latent:   numbers in a code.
    hidden:   width of the network that reads pairs.
    kl:       weight of the codes' divergence from the standard normal distribution.
    encoder_penalty: weight of ‖z' − z‖², which pulls the encoder's codes towards the adapted ones.
    orthogonality:   weight of the penalty on decoder rows that are alike.
    features: size of an embedding; by default the model's.
    """

    draws = True

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss = "cross_entropy",
        ways: int = 5,
        inner_lr: float = 1.0,
        inner_steps: int = 5,
        first_order: bool = False,
        latent: int = 64,
        hidden: int = 64,
        kl: float = 0.001,
        encoder_penalty: float = 1e-6,
        orthogonality: float = 0.1,
        features: int | None = None,
    ):
        super().__init__(model, loss, {CODES: inner_lr, NOISE: inner_lr}, inner_steps, first_order, learn_init=False)
        self.inner_lr, self.ways = inner_lr, require_at_least("ways", ways, 2)
        self.latent, self.hidden = require_at_least("latent", latent, 1), require_at_least("hidden", hidden, 1)
        self.kl, self.encoder_penalty = _weight("kl", kl), _weight("encoder_penalty", encoder_penalty)
        self.orthogonality = _weight("orthogonality", orthogonality)
        self.features, self.size = features, features_of(self, model, features)
        weights = self.size * (hidden + 2 * latent) + 2 * hidden * (hidden + latent)
        require_memory(4 * weights, f"LEO of latent={latent}, hidden={hidden}, features={self.size}")
        self.encode = nn.Linear(self.size, hidden, bias=False)
        self.relate = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
        self.decode = nn.Linear(latent, 2 * self.size, bias=False)
        self.log_rate = nn.Parameter(torch.tensor(float(inner_lr)).log())
        like = self.initial_context
        self.to(like.device, like.dtype)

    def _start(self) -> Fast:
        zeros = self.decode.weight.new_zeros
        return {CODES: zeros(self.ways, self.latent), NOISE: zeros(self.ways, self.size)}

    def step_size(self) -> dict[str, float | Tensor]:
        return {CODES: self.log_rate.exp(), NOISE: 0.0}  # no step moves the noise

    def check_targets(self, y: Tensor) -> None:
        check_labels(self, y, self.ways)

    def _begin(self, x: Inputs, y: Tensor, mask: Tensor | None) -> Fast:
        fast = self._starts(lead(x).shape[0])
        return fast | {CODES: self._distribution(x, y, mask)[0]}

    def _distribution(self, x: Inputs, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and log σ² of each class's code, [T, ways, latent] twice (Eq. 4 of Rusu et al.).

        The pairs of a class's points with all points are read, and the mean over them is taken. Without points, zeros.
        """
        self.check_targets(y)
        encoded = self.encode(self._embed(x))  # [T, K, hidden]
        pairs = [encoded.unsqueeze(2).expand(-1, -1, encoded.shape[1], -1), encoded.unsqueeze(1)]
        pairs[1] = pairs[1].expand(-1, encoded.shape[1], -1, -1)
        related = self.relate(torch.cat(pairs, -1))  # [T, K, K, 2 · latent]
        counts = torch.ones_like(encoded[..., 0]) if mask is None else mask.to(encoded.dtype)  # [T, K]
        with_all = (related * counts[:, None, :, None]).sum(2) / counts.sum(1).clamp(min=1)[:, None, None]
        labels = (y.unsqueeze(-1) == torch.arange(self.ways, device=y.device)).to(encoded.dtype) * counts.unsqueeze(-1)
        of_class = labels.mT @ with_all / labels.sum(1).clamp(min=1).unsqueeze(-1)  # [T, ways, 2 · latent]
        mean, log_variance = of_class.chunk(2, -1)
        return mean, log_variance

    def _embed(self, x: Inputs, statistics: Tensor | None = None) -> Tensor:
        """x [T, N, ...] → [T, N, F]."""
        no_context = self.decode.weight.new_zeros(lead(x).shape[0], self.model.context)
        given = () if statistics is None else (statistics,)
        features: Tensor = self.model(x, no_context, *given).flatten(2)
        if features.shape[-1] != self.size:
            raise CaviaError(
                f"LEO was built for {self.size} features, the model gives {list(features.shape)}; say features="
            )
        return features

    def predictor(self, x: Inputs, statistics: Tensor | None = None):  # type: ignore[no-untyped-def]
        """fast → logits [T, N, ways] of x [T, N, ...]: w·e(x) with w = μ(z) + σ(z) ε (Eq. 5)."""
        embedded = self._embed(x, statistics)

        def logits(fast: Fast) -> Tensor:
            mean, log_variance = self.decode(fast[CODES]).chunk(2, -1)  # each [T, ways, F]
            return embedded @ (mean + (log_variance / 2).exp() * fast[NOISE]).mT

        return logits

    def _statistics(self, x: Inputs, fast: Fast) -> Tensor:
        no_context = self.decode.weight.new_zeros(lead(x).shape[0], self.model.context)
        statistics: Tensor = self.model.statistics(x, no_context)  # type: ignore[operator]
        return statistics

    @checked
    def forward(self, batch: TaskBatch) -> Tensor:
        """Each task's query loss after adaptation, and the penalties (Eq. 6): [T]; codes and weights are drawn."""
        self.check_query(batch)
        x = without_padding(batch.support_x, batch.support_mask)
        mean, log_variance = self._distribution(x, batch.support_y, batch.support_mask)
        noise = [
            torch.randn_like(one) if self.training else torch.zeros_like(one) for one in (mean, self._noises(mean))
        ]
        codes = mean + (log_variance / 2).exp() * noise[0]
        start = Adapted.of({CODES: codes, NOISE: noise[1]})
        adapted = self._infer(batch.support_x, batch.support_y, batch.support_mask, self.inner_steps, start)
        divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum((1, 2)) / 2  # of q(z) and N(0, 1)
        moved = (adapted[CODES].detach() - codes).square().sum((1, 2))
        penalties = self.kl * divergence + self.encoder_penalty * moved + self.orthogonality * self._alike()
        return self.query_losses(batch, adapted) + penalties

    def _noises(self, mean: Tensor) -> Tensor:
        return mean.new_zeros(mean.shape[0], self.ways, self.size)

    def _alike(self) -> Tensor:
        """How alike the decoder's directions are: the mean square of their correlations, less the identity."""
        rows = normalize(self.decode.weight.mT, dim=1)  # [latent, 2 F]
        return (rows @ rows.mT - torch.eye(len(rows), dtype=rows.dtype, device=rows.device)).square().mean()


def _weight(name: str, value: float) -> float:
    return 0.0 if value == 0 else require_positive(name, value)
