"""MT-net: weights adapt under a learned transformation of each layer, and only some rows of them."""

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, require_positive
from cavia.kinds import checked
from cavia.learners.adapted import MEMORY, Adapted
from cavia.learners.gradient import GradientLearner, all_rates, key
from cavia.learners.inner import Fast, Rule, Slopes
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel
from cavia.tasks.batch import TaskBatch

MASK = f"{MEMORY}mask."  # begins the names of a task's masks


class MTNet(GradientLearner):
    """MT-net (Lee & Choi, 2018): each layer computes T·(W x + b); a task moves some rows of W and b, never T.

    T is learned, so it shapes the space in which a task's gradient steps are taken. In training, the rows that move are
    drawn for each task, with learned probabilities. Elsewhere, a row's step is multiplied by its probability.
    Weights that belong to no matrix, such as those of norms, move as in MAML. The paper claims that the result depends
    little on the inner rate.

    temperature: of the sampled masks; the smaller, the closer they are to 0 and 1.

    >>> learner = MTNet(MLP(inputs=1, outputs=1, context=0), loss="mse")
    >>> learner.transforms["layers-0-weight"].shape
    torch.Size([40, 40])
    """

    draws = True  # in training, from PyTorch's own generator

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 0.01,
        inner_steps: int = 1,
        first_order: bool = False,
        temperature: float = 1.0,
    ):
        super().__init__(model, loss, all_rates(model, inner_lr), inner_steps, first_order, learn_init=True)
        self.inner_lr, self.temperature = inner_lr, require_positive("temperature", temperature)
        start = self._start()
        matrices = {name: value for name, value in start.items() if value.ndim >= 2}
        if not matrices:
            raise CaviaError(f"MTNet transforms layers, but {type(model).__name__} has no weight matrix to train")
        self.transforms = nn.ParameterDict(
            {key(name): nn.Parameter(torch.eye(len(value)).to(value)) for name, value in matrices.items()}
        )
        self.row_logits = nn.ParameterDict(
            {key(name): nn.Parameter(value.new_zeros(len(value))) for name, value in matrices.items()}
        )
        self.matrix_of = {name: name for name in matrices} | _biases(start, matrices)

    def network(self, fast: Fast) -> Fast:
        """T W and T b for W [T, rows, ...] and b [T, rows]: the layer's y = T (W x + b)."""
        transformed = dict(fast)
        for name, matrix in self.matrix_of.items():
            value, transform = fast[name], self.transforms[key(matrix)]
            rows = value.flatten(2) if value.ndim > 2 else value.unsqueeze(-1)  # [T, rows, n]
            transformed[name] = (transform @ rows).view(value.shape)
        return transformed

    def rule(self) -> Rule:
        shares = {name: self.row_logits[key(name)].sigmoid() for name in set(self.matrix_of.values())}
        return MaskedDescent(self.fixed_rates, self.matrix_of, shares)

    @checked
    def forward(self, batch: TaskBatch) -> Tensor:
        """Each task's query loss after adaptation, [T]; in training with freshly sampled masks."""
        if not self.training:
            return self.task_losses(batch)
        self.check_query(batch)
        fast = self._starts(len(batch))
        start = Adapted.of(fast | self._drawn(len(batch)))
        adapted = self._infer(batch.support_x, batch.support_y, batch.support_mask, self.inner_steps, start)
        return self.query_losses(batch, adapted)

    def _drawn(self, tasks: int) -> Fast:
        """Masks [T, rows] of new tasks: Gumbel and softmax over "moves" and "stays", which is a logistic variable."""
        masks = {}
        for name in dict.fromkeys(self.matrix_of.values()):
            logits = self.row_logits[key(name)]
            uniform = torch.rand(tasks, *logits.shape, dtype=logits.dtype, device=logits.device).clamp(1e-6, 1 - 1e-6)
            masks[MASK + name] = ((logits + uniform.logit()) / self.temperature).sigmoid()
        return masks


class MaskedDescent(Rule):
    """W ← W − α M ⊙ ∇L, where M is the same along a row; a task's masks are what is remembered of it."""

    def __init__(self, rates: dict[str, float], matrix_of: dict[str, str], shares: Fast):
        self.rates, self.matrix_of, self.shares = rates, matrix_of, shares

    def begin(self, fast: Fast) -> Fast:
        tasks = next(iter(fast.values())).shape[0]
        return {MASK + name: share.expand(tasks, -1) for name, share in self.shares.items()}

    def step(self, slopes: Slopes, fast: Fast, memory: Fast) -> tuple[Fast, Fast]:
        gradients, _ = slopes(fast)
        moved = {}
        for name, value in fast.items():
            change = self.rates[name] * gradients[name]
            if name in self.matrix_of:
                mask = memory[MASK + self.matrix_of[name]]  # [T, rows]
                change = mask.view(*mask.shape, *(1,) * (value.ndim - 2)) * change
            moved[name] = value - change
        return moved, memory


def _biases(start: Fast, matrices: Fast) -> dict[str, str]:
    """The name of a bias → that of the matrix whose rows it belongs to."""
    by_layer = {name.rpartition(".")[0]: name for name in matrices}
    layers = {name: by_layer.get(name.rpartition(".")[0]) for name, value in start.items() if value.ndim == 1}
    return {n: own for n, own in layers.items() if "." in n and own and len(start[n]) == len(matrices[own])}
