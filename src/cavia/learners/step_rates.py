"""CAVIA with a separate rate for every step, which the outer loop trains."""

from torch import nn

from cavia.learners.adapted import CONTEXT
from cavia.learners.gradient import CAVIA
from cavia.learners.inner import Rule
from cavia.learners.losses import PointLoss
from cavia.learners.maml_plus_plus import RateOfEachStep
from cavia.models.base import ContextModel


class StepwiseCAVIA(CAVIA):
    """CAVIA with a learned rate for each inner step. Steps beyond `inner_steps` use the last step's.

    Useful with many steps: the first can be long, the later ones careful.

    inner_lr: all rates at the start.

    >>> learner = StepwiseCAVIA(MLP(inputs=1, outputs=1, context=5), loss="mse", inner_lr=0.1, inner_steps=3)
    >>> learner.rates_of_steps.shape
    torch.Size([3])
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 1.0,
        inner_steps: int = 5,
        first_order: bool = False,
        learn_init: bool = False,
    ):
        super().__init__(model, loss, inner_lr, inner_steps, first_order, learn_init)
        self.rates_of_steps = nn.Parameter(self.initial_context.new_full((self.inner_steps,), float(inner_lr)))

    def rule(self) -> Rule:
        return RateOfEachStep({CONTEXT: self.rates_of_steps})
