"""Where the ranks of a run on one machine meet, for those who start them without torchrun."""

import sys
from typing import Any

LOOPBACK = {"linux": "lo", "darwin": "lo0"}


class MeetingPoint:
    """A place on this machine where `count` processes find each other, as long as this object lives.

    It is in the process that starts them, so it outlives each of them, and what a rank said before it ended is there
    for the others to read.
    """

    def __init__(self, count: int):
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # by its stubs

        self.count = count
        self._store: Any = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def environment(self, rank: int) -> dict[str, str]:
        """The environment variables by which a process is that rank, as torchrun sets them."""
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
