"""A Ray cluster of several nodes on this machine, in a process of its own, so that ours may leave and join it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


class Nodes:
    """The head, which runs no cells of its own unless it is given cores, and nodes that come and go."""

    def __init__(self, head_cpus: int = 0, **options: Any):
        from ray.cluster_utils import Cluster

        head = SMALL | {"num_cpus": head_cpus, "include_dashboard": False} | options
        self.cluster = Cluster(initialize_head=True, head_node_args=head)

    @property
    def address(self) -> str:
        return self.cluster.address

    def add(self) -> Any:
        return self.cluster.add_node(**SMALL)

    def kill(self, node: Any) -> None:
        """As if its plug were pulled."""
        self.cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        for processes in self.cluster.head_node.all_processes.values():
            for one in processes:
                one.process.kill()


@contextmanager
def nodes(count: int = 2, **options: Any) -> Iterator[Nodes]:
    """A cluster with so many nodes of one core beside the head."""
    made = Nodes(**options)
    try:
        made.first = [made.add() for _ in range(count)]
        yield made
    finally:
        made.cluster.shutdown()
