"""MAML++: learned rates for every step, and an outer loss over all steps."""

import torch
from torch import Tensor, nn

from cavia.errors import require_at_least
from cavia.kinds import checked
from cavia.learners.adapted import MEMORY
from cavia.learners.gradient import GradientLearner, all_rates, key
from cavia.learners.inner import Fast, Rule, Slopes
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel
from cavia.tasks.batch import TaskBatch

STEPS = f"{MEMORY}steps"  # how many steps a task has taken, [T]


class MAMLPlusPlus(GradientLearner):
    """The essentials of MAML++ (Antoniou et al., 2019): MAML with a learned rate for each weight tensor and step.

    The outer loss is a weighted sum of the query losses after each inner step. All steps weigh the same at first; over
    `anneal` outer steps the weights move to the last one. Steps beyond `inner_steps` take the last step's rates.

    inner_lr: all rates at the start.
    anneal:   outer steps until only the last inner step counts; 0: from the beginning. `fit` counts them; in a loop
              of your own, add 1 to `learner.outer_steps` after each.

    >>> learner = MAMLPlusPlus(MLP(inputs=1, outputs=1, context=0), loss="mse", inner_lr=0.01, inner_steps=3)
    >>> learner.rates_of_steps["layers-0-weight"].shape
    torch.Size([3])
    """

    outer_steps: Tensor

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 0.01,
        inner_steps: int = 5,
        first_order: bool = False,
        anneal: int = 10_000,
    ):
        super().__init__(model, loss, all_rates(model, inner_lr), inner_steps, first_order, learn_init=True)
        self.inner_lr, self.anneal = inner_lr, require_at_least("anneal", anneal, 0)
        like = self.initial_context
        self.rates_of_steps = nn.ParameterDict(
            {key(name): nn.Parameter(like.new_full((self.inner_steps,), float(inner_lr))) for name in self.fast_names}
        )
        self.register_buffer("outer_steps", like.new_zeros(()))

    def rule(self) -> Rule:
        return RateOfEachStep({name: self.rates_of_steps[key(name)] for name in self.fast_names})

    def weights_of_steps(self) -> Tensor:
        """The weight of each inner step in the outer loss, [inner_steps]; they sum to 1."""
        share = (self.outer_steps / self.anneal).clamp(max=1) if self.anneal else torch.ones_like(self.outer_steps)
        early = (1 - share) / self.inner_steps  # of each step but the last
        last = torch.arange(self.inner_steps, device=share.device) == self.inner_steps - 1
        return torch.where(last, 1 - (self.inner_steps - 1) * early, early)

    @checked
    def forward(self, batch: TaskBatch) -> Tensor:
        """Σᵢ vᵢ L(θᵢ), the multi-step loss (Eq. 2 of Antoniou et al.), of each task: [T]."""
        is_annealed = not torch.compiler.is_compiling() and bool(self.outer_steps >= self.anneal)
        if is_annealed:
            return self.task_losses(batch)
        self.check_query(batch)
        adapted, losses = None, []
        for _ in range(self.inner_steps):
            adapted = self._infer(batch.support_x, batch.support_y, batch.support_mask, 1, adapted)
            losses.append(self.query_losses(batch, adapted))
        return torch.stack(losses, 1) @ self.weights_of_steps()


class RateOfEachStep(Rule):
    """Down the gradient, by rates [steps] for each name; it remembers how many steps a task has taken."""

    def __init__(self, rates: Fast):
        self.rates = rates

    def begin(self, fast: Fast) -> Fast:
        value = next(iter(fast.values()))
        return {STEPS: value.new_zeros(value.shape[0])}

    def step(self, slopes: Slopes, fast: Fast, memory: Fast) -> tuple[Fast, Fast]:
        gradients, _ = slopes(fast)
        moved = {}
        for name, value in fast.items():
            rates = self.rates[name]
            taken = memory[STEPS].clamp(max=rates.shape[0] - 1).long()  # [T]
            rate = rates[taken].view(-1, *(1,) * (value.ndim - 1))
            moved[name] = value - rate * gradients[name]  # Eq. (3) with αᵢ of the step i
        return moved, {STEPS: memory[STEPS] + 1}
