"""Variants of MAML and CAVIA that differ in what moves, and by which rates."""

from cavia.errors import CaviaError, closest, require_positive
from cavia.learners.adapted import CONTEXT
from cavia.learners.gradient import GradientLearner, all_rates, require_context
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel


class ANIL(GradientLearner):
    """Only the last layer's weights adapt ("almost no inner loop"); a context of the model stays at 0.

    head: name of the submodule that adapts, by default the one that holds the last parameter.
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 0.01,
        inner_steps: int = 1,
        first_order: bool = False,
        head: str | None = None,
    ):
        names = [name for name, _ in model.named_parameters()]
        if not names:
            raise CaviaError(f"ANIL adapts the weights of the model's last layer; {type(model).__name__} has none")
        prefix = names[-1].rpartition(".")[0] if head is None else head
        rates = {name: inner_lr for name in names if name.startswith(f"{prefix}.")}
        if not rates:
            layers = {name.rpartition(".")[0] for name in names}
            raise CaviaError(f"ANIL: no parameters under head {prefix!r}; {closest(prefix, layers)}")
        super().__init__(model, loss, rates, inner_steps, first_order, learn_init=False)
        self.inner_lr, self.head = inner_lr, head


class MetaSGD(GradientLearner):
    """Like MAML (adapts="weights") or CAVIA (adapts="context"), with one learned rate per adapted number.

    learn_init: with adapts="context", train φ₀ too; with adapts="weights" the start always is.
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 0.01,
        inner_steps: int = 1,
        first_order: bool = False,
        learn_init: bool = False,
        adapts: str = "weights",
    ):
        if adapts not in ("weights", "context"):
            raise CaviaError(f'MetaSGD: adapts must be "weights" or "context", got {adapts!r}')
        if adapts == "context":
            require_context("MetaSGD", model)
        rates = {CONTEXT: inner_lr} if adapts == "context" else all_rates(model, inner_lr)
        trains_start = learn_init or adapts == "weights"
        super().__init__(model, loss, rates, inner_steps, first_order, trains_start, learn_rates=True)
        self.inner_lr, self.learn_init, self.adapts = inner_lr, learn_init, adapts


class CaviaMAML(GradientLearner):
    """Context and weights adapt together, each with its own rate: the paper's future work."""

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 1.0,
        weights_lr: float = 0.01,
        inner_steps: int = 1,
        first_order: bool = False,
        learn_init: bool = False,
    ):
        require_context("CaviaMAML", model)
        require_positive("weights_lr", weights_lr)
        rates = all_rates(model, weights_lr) | {CONTEXT: inner_lr}
        super().__init__(model, loss, rates, inner_steps, first_order, learn_init)
        self.inner_lr, self.weights_lr, self.learn_init = inner_lr, weights_lr, learn_init
