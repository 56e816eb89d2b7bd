"""Runs an application at an address until it is told to stop: what `cavia serve` and `cavia demo` share."""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from cavia.errors import CaviaError, named

BACKLOG = 2048  # connections that wait to be accepted
DRAINING = 30  # seconds that requests have to end in


class Server(uvicorn.Server):
    """Ends on SIGTERM and Ctrl-C once pending requests are answered; on a second one, at once."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]):
        super().__init__(config)
        self.say_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.say_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {one: signal.signal(one, self._stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _stop(self, *_: object) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def address(listening: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on the address; port 0: any free one."""
    if not host:  # which would be all of the machine's addresses
        raise CaviaError("--host must be an address, got ''; choose 127.0.0.1, or 0.0.0.0 for all")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, ValueError) as error:  # the second: no name that a host can have
        why = getattr(error, "strerror", error)
        raise CaviaError(f"cannot listen on {named(host)}: {why}; choose another --host") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(BACKLOG)  # only this makes the address ours
    except OSError as error:
        made.close()
        raise CaviaError(
            f"cannot listen on {named(host)}, port {port}: {error.strerror or error}; choose another --port"
        ) from error
    return made


def run(app: Any, listening: socket.socket, started: Callable[[], None], draining: int = DRAINING) -> None:
    """Serve until a signal comes. started: is called when requests are answered; draining: seconds that they have."""
    config = uvicorn.Config(
        app,
        access_log=False,
        proxy_headers=False,  # nothing looks at the client's address
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=draining,
        lifespan="auto",
    )
    Server(config, started).run([listening])
