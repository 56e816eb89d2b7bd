"""What the nodes of a cluster must have in common for the same numbers to come out of each."""

from collections.abc import Mapping

from cavia.commit import this_commit
from cavia.errors import CaviaError


def versions() -> dict[str, str]:
    """What decides the numbers, by name."""
    import torch

    from cavia import __version__

    commit = this_commit().removesuffix("+")
    return {"cavia": commit if __version__ in commit else f"{__version__} ({commit})", "torch": torch.__version__}


def require_same_versions(theirs: Mapping[str, str], here: Mapping[str, str] | None = None) -> None:
    """An error that names this node if it has other versions than those who gave it its work. here: this node's."""
    for name, mine in (here or versions()).items():
        if theirs[name] != mine:
            raise CaviaError(
                f"it has {name} {mine}, the machine that started the run {theirs[name]}; install the same on all nodes"
            )


def this_node() -> str:
    """The node as messages name it."""
    import ray

    context = ray.get_runtime_context()
    return f"{ray.util.get_node_ip_address()} ({context.get_node_id()[:8]})"
