# The public names and where they live; `__init__.py` reads this file and imports each at its first use.
from . import envs as envs
from .conformance.envs import check_env as check_env
from .conformance.learners import check_learner as check_learner
from .conformance.models import check_model as check_model
from .conformance.tasks import check_tasks as check_tasks
from .errors import CaviaError as CaviaError, Diverged as Diverged, Interrupted as Interrupted
from .evaluation.evaluate import Evaluation as Evaluation, evaluate as evaluate
from .learners.acting import Updates as Updates
from .learners.adapted import Adapted as Adapted
from .learners.amortised import CNP as CNP
from .learners.base import Learner as Learner
from .learners.compiled import compiled as compiled
from .learners.e_maml import EMAML as EMAML
from .learners.gradient import CAVIA as CAVIA, MAML as MAML
from .learners.implicit import ImplicitMAML as ImplicitMAML
from .learners.inner import adapt as adapt
from .learners.leo import LEO as LEO
from .learners.maml_plus_plus import MAMLPlusPlus as MAMLPlusPlus
from .learners.meta_lstm import MetaLSTM as MetaLSTM
from .learners.metric import MatchingNets as MatchingNets, ProtoNets as ProtoNets
from .learners.mt_net import MTNet as MTNet
from .learners.newton import GaussNewton as GaussNewton
from .learners.relation import RelationNets as RelationNets
from .learners.reptile import Reptile as Reptile
from .learners.sampled import MAESN as MAESN, SampledCAVIA as SampledCAVIA
from .learners.saving import load as load
from .learners.step_rates import StepwiseCAVIA as StepwiseCAVIA
from .learners.variants import ANIL as ANIL, CaviaMAML as CaviaMAML, MetaSGD as MetaSGD
from .learners.versa import VERSA as VERSA, VERSARegression as VERSARegression
from .models.base import ContextModel as ContextModel
from .models.basis import WaveBasis as WaveBasis
from .models.condition import condition as condition
from .models.conditioned import Conditioned as Conditioned
from .models.context_layers import Concat as Concat, FiLM as FiLM
from .models.convnet import ConvNet as ConvNet
from .models.flow import Flow as Flow
from .models.mlp import MLP as MLP
from .models.policy import CategoricalPolicy as CategoricalPolicy, GaussianPolicy as GaussianPolicy
from .pictures.completion import Completion as Completion
from .pictures.episodes import Episodes as Episodes
from .pictures.faces import synthetic_faces as synthetic_faces
from .pictures.glyphs import synthetic_glyphs as synthetic_glyphs
from .pictures.images import ImageSet as ImageSet
from .published.models import pretrained as pretrained
from .store.contexts import ContextStore as ContextStore
from .tables.estimator import ContextClassifier as ContextClassifier, ContextRegressor as ContextRegressor
from .tables.few_shot import few_shot_score as few_shot_score
from .tables.tasks import Tasks as Tasks
from .tasks.batch import TaskBatch as TaskBatch, TaskFamily as TaskFamily
from .tasks.dynamics import (
    Dynamics as Dynamics,
    Glycolysis as Glycolysis,
    LotkaVolterra as LotkaVolterra,
    Selkov as Selkov,
    windows as windows,
)
from .tasks.modes import Modes as Modes
from .tasks.sine import Sine as Sine
from .training.adam import Adam as Adam
from .training.checkpoint import RunFolder as RunFolder
from .training.feed import Validation as Validation
from .training.fit import fit as fit
from .training.outer import Outer as Outer, OuterStep as OuterStep
from .training.ppo import PPO as PPO
from .training.run import FitResult as FitResult
from .training.trpo import TRPO as TRPO

__version__: str
