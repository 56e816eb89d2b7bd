"""What the nodes of a cluster must have in common to compute the same numbers."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from cavia.errors import CaviaError

CODE = (".cpp", ".h", ".py")


def versions() -> dict[str, str]:
    """The versions that determine the numbers, by name."""
    import torch

    from cavia import __version__

    return {"cavia": f"{__version__} (code {_code()})", "torch": torch.__version__}


def require_same_versions(theirs: Mapping[str, str]) -> None:
    """Raise if this node's versions differ from those of the machine that started the run."""
    for name, mine in versions().items():
        if theirs[name] != mine:
            raise CaviaError(
                f"it has {name} {mine}, the machine that started the run {theirs[name]}; install the same on all nodes"
            )


def this_node() -> str:
    """The node as messages name it."""
    import ray

    context = ray.get_runtime_context()
    return f"{ray.util.get_node_ip_address()} ({context.get_node_id()[:8]})"


@cache
def _code() -> str:
    """A digest of cavia's own code, which distinguishes checkouts of the same version."""
    digest, root = sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*")):
        if path.suffix in CODE:
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
