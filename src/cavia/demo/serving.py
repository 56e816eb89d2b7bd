"""The server of `cavia demo`: it takes its port before anything is loaded, and stops at Ctrl-C."""

import socket
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path

from cavia.errors import CaviaError, missing_package


def serve_demo(host: str, port: int, browser: bool, data_root: Path | None) -> None:
    """Serve the page until Ctrl-C. port 0 takes any that is free; browser: open the page in one."""
    try:
        import uvicorn

        from cavia.demo.routes import application
    except ImportError as error:
        raise missing_package("cavia demo", error.name or str(error), "serve") from None
    with _listening(host, port) as listening:
        address = _address(listening)
        server = uvicorn.Server(
            uvicorn.Config(application(data_root), log_level="warning", access_log=False, timeout_graceful_shutdown=1)
        )
        with suppress(KeyboardInterrupt):  # uvicorn passes it on when all is closed
            print(f"cavia demo at {address} (Ctrl-C stops it)", flush=True)
            if browser:
                threading.Timer(0.5, webbrowser.open, [address]).start()
            server.run([listening])
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
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
        found.close()
        why = getattr(error, "strerror", None) or error
        raise CaviaError(f"cannot listen at {host}, port {port}: {why}; choose another --port or --host") from None
    return found


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
