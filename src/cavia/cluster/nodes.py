"""What the nodes of a cluster must have in common for the same numbers to come out of each."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from cavia.errors import CaviaError

CODE = (".cpp", ".h", ".py")


def versions() -> dict[str, str]:
    """What decides the numbers, by name."""
    import torch

    from cavia import __version__

    return {"cavia": f"{__version__} (code {_code()})", "torch": torch.__version__}


def require_same_versions(theirs: Mapping[str, str]) -> None:
    """An error if this node has other versions than those who gave it its work."""
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
    """A digest of cavia's own code, which tells checkouts of one version from each other."""
    digest, root = sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*")):
        if path.suffix in CODE:
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
