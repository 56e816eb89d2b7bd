"""The network of the few-shot experiments: four convolutions, modulated by the context (Section 5.2)."""

import math
from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from cavia.errors import CaviaError, require_at_least, require_one_of
from cavia.kernels import pool_first
from cavia.kernels.choice import has_hooks, is_float_on_cpu, is_ready, may_fuse, may_pool_first
from cavia.kernels.stem import Layer, Layers, fits, fused
from cavia.machine import require_memory
from cavia.models.base import NormedModel, as_floats
from cavia.models.context_layers import FiLM
from cavia.models.norm import EPSILON, TaskNorm
from cavia.tasks.points import one_tensor

BLOCKS = 4
NORMS = ("task", "support", "running")
SHRINKS = ("pool", "stride")
MOMENTUM = 0.1  # of the running statistics


class ConvNet(NormedModel):
    """Four blocks of convolution, norm, (max-pool,) (FiLM,) ReLU, then a linear layer on the remaining map.

    x [T, N, channels, image, image], context [T, C] → logits [T, N, ways].

    ways:     classes; 0: no linear layer, the output is the features [T, N, F] (for ProtoNets and the like).
    filters:  of every convolution.
    image:    pixels along a side of a picture, 84 and 28 in the literature.
    context:  number of context parameters C; 0: none and no FiLM, for methods that adapt weights.
    film:     the block, or blocks, 1 to 4, that the context modulates.
    shrink:   how a block halves its picture: "pool", by max-pooling behind the convolution, or "stride", by a
              convolution of stride 2, which has a quarter of the work (Finn et al.'s choice for Omniglot).
    norm:     whose statistics the norms use. "task": those of the points at hand, so all query points of a task
              are normalised together (transductive; the paper's). "support": those of the support points, for query
              points too. "running": in evaluation (learner.eval()), averages over the training batches, of the network
              before it adapts; `fit` keeps them up to date, a loop of your own calls `observe`.
    """

    def __init__(
        self,
        ways: int = 5,
        filters: int = 32,
        image: int = 84,
        channels: int = 3,
        context: int = 100,
        film: int | Sequence[int] = 3,
        norm: str = "task",
        shrink: str = "pool",
    ):
        super().__init__()
        film = (int(film),) if isinstance(film, int | Integral) else tuple(sorted({int(block) for block in film}))
        for name, value, least in (("ways", ways, 0), ("filters", filters, 1), ("channels", channels, 1)):
            require_at_least(name, value, least)
        require_at_least("image", image, 2**BLOCKS)
        require_at_least("context", context, 0)
        if not film or not all(1 <= block <= BLOCKS for block in film):
            raise CaviaError(f"film must name blocks from 1 to {BLOCKS}, got {film}")
        for name, choice, known in (("norm", norm, NORMS), ("shrink", shrink, SHRINKS)):
            require_one_of(name, choice, known)
        side = image // 2**BLOCKS if shrink == "pool" else math.ceil(image / 2**BLOCKS)
        weights = 9 * filters * (channels + 3 * filters) + filters * side**2 * ways + 2 * len(film) * context * filters
        require_memory(
            4 * weights,
            f"a ConvNet of ways={ways}, filters={filters}, image={image}, channels={channels}, context={context}",
        )
        self.ways, self.filters, self.image, self.channels = ways, filters, image, channels
        self.context, self.film, self.norm, self.shrink = context, film, norm, shrink
        self.pools, self.keeps_statistics = shrink == "pool", norm == "support"
        self.film_blocks = tuple(block - 1 for block in film) if context else ()
        widths = (channels, *(filters,) * BLOCKS)
        # No bias: the norm behind a convolution would take it away again.
        self.convolutions = nn.ModuleList(
            nn.Conv2d(widths[i], widths[i + 1], 3, stride=1 if self.pools else 2, padding=1, bias=False)
            for i in range(BLOCKS)
        )
        self.norms = nn.ModuleList(TaskNorm(filters) for _ in range(BLOCKS))
        self.films = nn.ModuleDict({str(block): FiLM(context, filters) for block in self.film_blocks})
        features = filters * side**2
        self.outputs = ways or features
        self.linear = nn.Linear(features, ways) if ways else None
        for layer in (*self.convolutions, *([self.linear] if self.linear else [])):
            nn.init.kaiming_normal_(layer.weight)  # He initialisation
        if self.linear:
            nn.init.zeros_(self.linear.bias)
        if norm == "running":
            start = torch.stack([torch.zeros(BLOCKS, filters), torch.ones(BLOCKS, filters)], 1)
            self.running: Tensor
            self.register_buffer("running", start)  # [blocks, 2, filters]
        # The layers of the stem end where φ first enters; without φ, at the linear layer.
        self.first = min(self.film_blocks, default=BLOCKS - 1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def stem(self, x: Tensor, statistics: Tensor | None = None) -> Tensor:
        """x [T, N, channels, image, image] → what the first FiLM is applied to, [T, N, filters, H, W]."""
        expected = (self.channels, self.image, self.image)
        x = one_tensor(x, "ConvNet")
        if x.ndim != 5 or x.shape[2:] != expected or not x.shape[1]:
            raise CaviaError(f"this ConvNet takes x [T, N, {', '.join(map(str, expected))}], got {list(x.shape)}")
        x = as_floats(x, self.convolutions[0].weight)  # type: ignore[arg-type]
        statistics = self._used(statistics, x.shape[0])
        if statistics is None and self.fuses and may_fuse(x, self._stem_layers()):
            return fused(x, self._stem_layers(), EPSILON)
        for block in range(self.first):
            x = self._modulated(block, self._convolved(block, x, statistics), None)
        return self._convolved(self.first, x, statistics)

    @property
    def fuses(self) -> bool:
        """Whether this network allows the stem to be one operation: its sizes, its device, its layers."""
        weight, _, _ = self._layer(0)
        if not (self.pools and fits(self.channels, self.filters) and is_float_on_cpu(weight)):
            return False
        return all(_is_as_made(layer) for layer in (*self.convolutions, *self.norms))

    @property
    def vectorises(self) -> bool:  # type: ignore[override]  # it depends
        """False where one task after another through the fused stem is faster than torch.func.vmap."""
        return self.norm == "support" or not (self.fuses and is_ready(self._stem_layers()))

    def _stem_layers(self) -> Layers:
        return [self._layer(block) for block in range(self.first + 1)]

    def _layer(self, block: int) -> Layer:
        """The parameters of a block: kernels [filters, channels, 3, 3], γ and β [filters]."""
        norm = self.norms[block]
        return self.convolutions[block].weight, norm.weight, norm.bias  # type: ignore[return-value]

    def head(self, h: Tensor, context: Tensor, statistics: Tensor | None = None) -> Tensor:
        statistics = self._used(statistics, h.shape[0])
        h = self._modulated(self.first, h, context)
        for block in range(self.first + 1, BLOCKS):
            h = self._modulated(block, self._convolved(block, h, statistics), context)
        features = h.flatten(2)
        return features if self.linear is None else self.linear(features)

    def statistics(self, x: Tensor, context: Tensor) -> Tensor:
        """The norms' means and variances on x [T, N, ...] with the context [T, C]: [T, blocks, 2, filters]."""
        blocks = []
        for block in range(BLOCKS):
            convolved = self._convolution(block, x)
            blocks.append(self.norms[block].statistics(convolved))  # type: ignore[operator]
            x = self._modulated(block, self._pooled(block, convolved, blocks[-1]), context)
        return torch.stack(blocks, 1)

    @torch.no_grad()
    def observe(self, x: Tensor, chunk: int) -> None:
        """Move the running statistics towards those of training points x [T, N, ...], before adaptation."""
        if self.norm == "running":
            parts = [self.statistics(part, part.new_zeros(len(part), self.context)) for part in x.split(chunk)]
            statistics = torch.cat(parts)
            fine = statistics.flatten(1).isfinite().all(1)  # a task whose pictures are not finite does not count
            mean = statistics.where(fine.view(-1, 1, 1, 1), 0).sum(0) / fine.sum()
            self.running.lerp_(mean.where(fine.any(), self.running), MOMENTUM)

    def _used(self, statistics: Tensor | None, tasks: int) -> Tensor | None:
        """[T, blocks, 2, filters], or None where every task has its own."""
        if statistics is None and self.norm == "running" and not self.training:
            return self.running.expand(tasks, *self.running.shape)
        return statistics

    def _convolution(self, block: int, h: Tensor) -> Tensor:
        return self.convolutions[block](h.flatten(0, 1)).unflatten(0, h.shape[:2])

    def _pooled(self, block: int, h: Tensor, statistics: Tensor | None) -> Tensor:
        normed = self.norms[block](h, statistics)
        if not self.pools:
            return normed
        return max_pool2d(normed.flatten(0, 1), 2).unflatten(0, h.shape[:2])

    def _convolved(self, block: int, h: Tensor, statistics: Tensor | None) -> Tensor:
        """A block up to where φ may enter."""
        if statistics is None and h.shape[0] == 1 and self.fuses:
            weight, gamma, beta = self._layer(block)
            if may_pool_first(h, weight, gamma) and (block or not h.requires_grad):
                pooled = pool_first.later_block if block else pool_first.first_block
                return pooled(h.squeeze(0), weight, gamma, beta, EPSILON).unsqueeze(0)
        return self._pooled(block, self._convolution(block, h), None if statistics is None else statistics[:, block])

    def _modulated(self, block: int, h: Tensor, context: Tensor | None) -> Tensor:
        """The rest of a block."""
        return relu(h if block not in self.film_blocks else self.films[str(block)](h, context))


def _is_as_made(layer: nn.Module) -> bool:
    """Whether a layer is still the constructor's own, and has no hooks."""
    if has_hooks(layer):
        return False
    if type(layer) is nn.Conv2d:
        made = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.padding_mode)
        return made == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros") and layer.bias is None
    return type(layer) is TaskNorm
