"""Fast context adaptation: one network for many tasks, a few numbers per task (CAVIA, Zintgraf et al., ICML 2019)."""

from cavia import envs
from cavia.errors import CaviaError, Diverged, Interrupted
from cavia.evaluation.evaluate import Evaluation, evaluate
from cavia.evaluation.returns import evaluate_returns
from cavia.learners.amortised import CNP
from cavia.learners.base import Learner
from cavia.learners.gradient import ANIL, CAVIA, MAML, CaviaMAML, MetaSGD, Reptile
from cavia.learners.inner import adapt
from cavia.learners.metric import MatchingNets, ProtoNets
from cavia.learners.newton import GaussNewton
from cavia.learners.saving import load
from cavia.models.base import ContextModel
from cavia.models.basis import WaveBasis
from cavia.models.condition import condition
from cavia.models.conditioned import Conditioned
from cavia.models.conditioning import Concat, FiLM
from cavia.models.convnet import ConvNet
from cavia.models.mlp import MLP
from cavia.models.policy import CategoricalPolicy, GaussianPolicy
from cavia.store.contexts import ContextStore
from cavia.tasks.batch import TaskBatch, TaskFamily
from cavia.tasks.completion import Completion
from cavia.tasks.episodes import Episodes
from cavia.tasks.glyphs import synthetic_glyphs
from cavia.tasks.images import ImageSet
from cavia.tasks.own import Tasks
from cavia.tasks.sine import Sine
from cavia.tasks.synthetic import synthetic_faces
from cavia.training.fit import fit
from cavia.training.fit_policy import fit_policy
from cavia.training.run import FitResult
from cavia.training.trpo import TrustRegion

__version__ = "0.1.0"

__all__ = [
    "ANIL",
    "CAVIA",
    "CNP",
    "MAML",
    "MLP",
    "CategoricalPolicy",
    "CaviaError",
    "CaviaMAML",
    "Completion",
    "Concat",
    "Conditioned",
    "ContextModel",
    "ContextStore",
    "ConvNet",
    "Diverged",
    "Episodes",
    "Evaluation",
    "FiLM",
    "FitResult",
    "GaussNewton",
    "GaussianPolicy",
    "ImageSet",
    "Interrupted",
    "Learner",
    "MatchingNets",
    "MetaSGD",
    "ProtoNets",
    "Reptile",
    "Sine",
    "TaskBatch",
    "TaskFamily",
    "Tasks",
    "TrustRegion",
    "WaveBasis",
    "adapt",
    "condition",
    "envs",
    "evaluate",
    "evaluate_returns",
    "fit",
    "fit_policy",
    "load",
    "synthetic_faces",
    "synthetic_glyphs",
]
