"""The same meta-step by other means, to measure ours against. Nothing here is part of the library.

Each module imports its own peer, so that one that is not installed is left out, by name.
"""

from collections.abc import Callable
from importlib.util import find_spec

from peers.entrant import Entrant
from peers.work import Work

RECIPE, EAGER, COMPILED, BEFORE = "recipe", "cavia", "cavia, compiled", "cavia at 3587be9"
LOOPING, BF16 = "cavia, loop inside", "cavia, compiled, bf16"
LIBRARIES = ("higher", "torchopt", "jax")


def entrants(work: Work) -> dict[str, Callable[[], Entrant]]:
    """Name → a function that makes the entrant, for all that can do this work and are installed."""
    from peers.ours import Ours, OursLooping, WithoutOneDnn
    from peers.recipe import recipe

    makers: dict[str, Callable[[], Entrant]] = {RECIPE: lambda: recipe(work), EAGER: lambda: Ours(work)}
    if work.compiled:
        makers[COMPILED] = lambda: Ours(work, compiled=True)
        if work.compiled_chunk is None:
            makers[LOOPING] = lambda: OursLooping(work)
        else:
            makers[BF16] = lambda: Ours(work, compiled=True, precision="bf16")
            makers[BEFORE] = lambda: WithoutOneDnn(work)
    if work.loss == "cross_entropy":
        from peers.before import Before

        makers[BEFORE] = lambda: Before(work)
    if find_spec("higher"):
        from peers.with_higher import Higher, HigherBatched

        makers["higher"] = lambda: Higher(work)
        if work.method == "CAVIA":
            makers["higher, tasks batched"] = lambda: HigherBatched(work)
    if find_spec("torchopt"):
        from peers.with_torchopt import TorchOpt, TorchOptMapped

        makers["torchopt"] = lambda: TorchOpt(work)
        if work.method == "CAVIA" or work.loss == "mse":  # see docs/performance.md: not the same meta-gradient
            makers["torchopt, vmap"] = lambda: TorchOptMapped(work)
    if find_spec("jax") and work.loss == "mse":
        from peers.with_jax import Jax, JaxLoop

        makers["JAX, jit"] = lambda: Jax(work)
        makers["JAX, loop inside"] = lambda: JaxLoop(work)
    return makers


def missing() -> list[str]:
    """The peers that are not installed."""
    return [name for name in LIBRARIES if not find_spec(name)]
