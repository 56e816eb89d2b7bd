"""A rendezvous for the ranks of a run on one machine, for starting them without torchrun."""

import sys
from typing import Any

LOOPBACK = {"linux": "lo", "darwin": "lo0"}


class MeetingPoint:
    """A rendezvous on this machine for `count` processes, as long as this object lives.

    It lives in the process that starts them, so it outlives them all, and the others can still read what a rank
    reported before it ended.
    """

    def __init__(self, count: int):
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # by its stubs

        self.count = count
        self._store: Any = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def environment(self, rank: int) -> dict[str, str]:
        """The environment variables that make a process this rank, as torchrun sets them."""
        where = {"GLOO_SOCKET_IFNAME": LOOPBACK[sys.platform]} if sys.platform in LOOPBACK else {}
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.count),
            "LOCAL_WORLD_SIZE": str(self.count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            **where,
        }
