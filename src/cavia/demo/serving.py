"""The server of `cavia demo`: it takes its port before anything is loaded, and stops at Ctrl-C."""

import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn

from cavia.demo.routes import application
from cavia.errors import CaviaError, named


class Server(uvicorn.Server):
    """Calls `started` when requests are answered, and signals are listened to."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]):
        super().__init__(config)
        self.say_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.say_started()


def serve_demo(host: str, port: int, browser: bool, data_root: Path | None) -> None:
    """Serve the page until Ctrl-C. port 0 takes any that is free; browser: open the page in one."""
    with _listening(host, port) as listening:
        address = _address(listening)

        def started() -> None:
            print(f"cavia demo at {address} (Ctrl-C stops it)", flush=True)
            if browser:
                threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

        config = uvicorn.Config(
            application(data_root), log_level="warning", access_log=False, timeout_graceful_shutdown=1
        )
        with suppress(KeyboardInterrupt):  # uvicorn passes it on when all is closed
            Server(config, started).run([listening])
        print("stopped", flush=True)


def _listening(host: str, port: int) -> socket.socket:
    """A socket at that address."""
    if not host:  # which would be all of the machine's addresses
        raise CaviaError("--host must be an address, got ''; choose 127.0.0.1, or 0.0.0.0 for all")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()
    except (OSError, UnicodeError, TypeError) as error:  # the last two: no name that a host can have
        found.close()
        why = getattr(error, "strerror", None) or error
        raise CaviaError(
            f"cannot listen at {named(host)}, port {port}: {why}; choose another --port or --host"
        ) from None
    return found


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
