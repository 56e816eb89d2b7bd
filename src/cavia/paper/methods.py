"""The methods that the experiments compare, by their names in tables."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cavia.learners.amortised import CNP
from cavia.learners.base import Learner
from cavia.learners.e_maml import EMAML
from cavia.learners.gradient import CAVIA, MAML
from cavia.learners.implicit import ImplicitMAML
from cavia.learners.leo import LEO
from cavia.learners.maml_plus_plus import MAMLPlusPlus
from cavia.learners.meta_lstm import MetaLSTM
from cavia.learners.metric import MatchingNets, ProtoNets
from cavia.learners.mt_net import MTNet
from cavia.learners.relation import RelationNets
from cavia.learners.reptile import Reptile
from cavia.learners.sampled import MAESN, SampledCAVIA
from cavia.learners.variants import ANIL, CaviaMAML, MetaSGD
from cavia.learners.versa import VERSA, VERSARegression
from cavia.models.base import ContextModel


@dataclass(frozen=True)
class Method:
    """A learner and its fixed arguments.

    context: the model's context parameters adapt; otherwise they are extra inputs, or there are none.
    head:    the model has an output layer for the classes; otherwise the method classifies its features.
    loss:    the method's own loss, instead of the experiment's.
    walks:   needs more inner steps than the experiment's other methods.
    """

    learner: Callable[..., Learner]
    arguments: dict[str, Any] = field(default_factory=dict)
    context: bool = False
    head: bool = True
    walks: bool = False
    loss: str | None = None

    @property
    def has_rate(self) -> bool:
        """Whether it has an inner learning rate."""
        return "inner_lr" in inspect.signature(self.learner).parameters

    def __call__(self, model: ContextModel, loss: str, **offered: Any) -> Learner:
        """A new learner around the model, given the offered arguments that its constructor accepts."""
        taken = inspect.signature(self.learner).parameters
        return self.learner(
            model, self.loss or loss, **self.arguments, **{k: v for k, v in offered.items() if k in taken}
        )


METHODS: dict[str, Method] = {
    "CAVIA": Method(CAVIA, context=True),
    "CAVIA (first order)": Method(CAVIA, {"first_order": True}, context=True),
    "CAVIA, learned start": Method(CAVIA, {"learn_init": True}, context=True),
    "CAVIA, momentum": Method(CAVIA, {"optimiser": "momentum"}, context=True),
    "CAVIA, Adam": Method(CAVIA, {"optimiser": "adam"}, context=True),
    "CAVIA, Gauss–Newton": Method(CAVIA, {"optimiser": "gauss_newton"}, context=True),
    "CAVIA, sampled context": Method(SampledCAVIA, context=True),
    "MAESN": Method(MAESN, context=True),
    "MAML": Method(MAML),
    "E-MAML": Method(EMAML),
    "MAML (first order)": Method(MAML, {"first_order": True}),
    "ANIL": Method(ANIL),
    "Meta-SGD": Method(MetaSGD),
    "Reptile": Method(Reptile, walks=True),
    "MAML++": Method(MAMLPlusPlus, {"anneal": 1000}),
    "iMAML": Method(ImplicitMAML, walks=True),
    "MT-net": Method(MTNet),
    "Meta-LSTM": Method(MetaLSTM),
    "CAVIA + MAML": Method(CaviaMAML, context=True),
    "CNP": Method(CNP),
    "ProtoNets": Method(ProtoNets, head=False),
    "Matching Networks": Method(MatchingNets, head=False),
    "Relation Networks": Method(RelationNets, head=False, loss="score_mse"),
    "VERSA": Method(VERSA, head=False),
    "VERSA (regression)": Method(VERSARegression, head=False),
    "LEO": Method(LEO, head=False),
}
