"""Which learners' steps compile="auto" compiles, and which may use bf16 matrix products."""

import warnings

import torch
from torch.nn import RNNBase
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from cavia.compiler.obstacles import doubt, drawback
from cavia.errors import CaviaError
from cavia.learners.base import Learner
from cavia.learners.newton import GaussNewton


def is_worth_compiling(learner: Learner) -> bool:
    """Whether compile="auto" compiles a long run; warns where only the caller can decide."""
    if why := doubt(learner, learner.loss):
        warnings.warn(
            f"the meta-step runs uncompiled: {why}; Adam(compile=True) compiles it all the same", stacklevel=3
        )
        return False
    return drawback(learner) is None and not learner.draws  # compiled code would draw different numbers


def require_linear_layers(learner: Learner) -> None:
    """Raise unless bf16 is known to be precise enough: on real images, gradients of convolutions were 30 % off."""
    use = 'use precision="float32"'
    if isinstance(learner, GaussNewton) or getattr(learner, "optimiser", "") == "gauss_newton":
        raise CaviaError(f"GaussNewton solves linear systems, for which bf16 is too coarse; {use}")
    unfit = next((module for module in learner.modules() if isinstance(module, _ConvNd | RNNBase | _NormBase)), None)
    if unfit is not None:
        raise CaviaError(f'precision="bf16" is for networks of linear layers, not for {type(unfit).__name__}; {use}')
    other = {parameter.dtype for parameter in learner.parameters()} - {torch.float32}
    if other:
        raise CaviaError(f'precision="bf16" is for learners in torch.float32, this one has {other.pop()}; use .float()')
