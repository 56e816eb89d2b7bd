"""Methods that adapt without a gradient: a network reads the support set and writes the context."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, require_at_least, shown
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.learners.losses import PointLoss, without_padding
from cavia.machine import require_memory
from cavia.models.base import ContextModel
from cavia.tasks.points import Inputs, one_tensor, shape


class CNP(Learner):
    """Conditional neural process (Garnelo et al., 2018): the context is a mean over encoded support points.

    The encoder reads each point (x, y) on its own; the mean over points and a linear map give the embedding, which
    the model, here the decoder, takes as its context.

    model:   the decoder; its number of context parameters is the size of the embedding.
    inputs:  length of a point's x.
    outputs: length of a point's y.
    encoder: widths of the encoder's ReLU layers.

    >>> learner = CNP(MLP(inputs=2, outputs=3, hidden=(128,) * 5, context=128), loss="mse", inputs=2, outputs=3)
    >>> learner.adapt(torch.zeros(25, 10, 2), torch.zeros(25, 10, 3)).context.shape
    torch.Size([25, 128])
    """

    inner_steps = 1  # reading the support set once more would change nothing

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inputs: int,
        outputs: int,
        encoder: Sequence[int] = (128, 128, 128),
    ):
        super().__init__(model, loss)
        if model.context == 0:
            raise CaviaError("CNP writes the context of its model, but the model has context=0; give it at least 1")
        self.inputs = require_at_least("inputs", inputs, 1)
        self.outputs = require_at_least("outputs", outputs, 1)
        self.encoder = tuple(require_at_least("encoder", width, 1) for width in encoder)
        widths = (inputs + outputs, *self.encoder)
        require_memory(
            4 * sum(a * b for a, b in pairwise((*widths, model.context))),
            f"an encoder of inputs={inputs}, outputs={outputs}, encoder={shown(self.encoder)}",
        )
        self.encode_point = nn.Sequential(
            *(layer for sizes in pairwise(widths) for layer in (nn.Linear(*sizes), nn.ReLU()))
        )
        self.to_context = nn.Linear(widths[-1], model.context)

    def infer(self, x: Inputs, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        """x [T, K, inputs] and y [T, K, outputs] → the embedding [T, C]; with no steps, zeros or what was given."""
        x = one_tensor(x, "CNP")
        if steps == 0:
            if start is not None:
                self.check_context(x, start)
            return start or Adapted.of({CONTEXT: self.to_context.weight.new_zeros(x.shape[0], self.model.context)})
        if x.shape[2:] != (self.inputs,) or y.shape[2:] != (self.outputs,):
            raise CaviaError(
                f"this CNP reads x [T, K, {self.inputs}] and y [T, K, {self.outputs}], got {shape(x)} and {shape(y)}"
            )
        own = self.to_context.weight.dtype
        points = torch.cat([x.to(own), without_padding(y, mask).to(own)], -1)
        encoded = self.encode_point(points)  # [T, K, encoder[-1]]
        if mask is None:
            mean = encoded.mean(1) if x.shape[1] else encoded.sum(1)  # without points, zeros, as if all were padding
        else:
            mean = without_padding(encoded, mask).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        # The linear map commutes with the mean, so it is applied once to each task.
        return Adapted.of({CONTEXT: self.to_context(mean)})

    def respond(self, x: Inputs, adapted: Adapted) -> Tensor:
        return self.model(x, self.check_context(x, adapted))
