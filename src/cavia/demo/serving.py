"""The server of `cavia demo`: it takes its port before anything is loaded, and stops at Ctrl-C."""

import threading
import webbrowser
from pathlib import Path

from cavia.demo.routes import application
from cavia.listening import address, bound, run


def serve_demo(host: str, port: int, browser: bool, data_root: Path | None) -> None:
    """Serve the page until Ctrl-C. port 0: any free port; browser: open the page in one."""
    with bound(host, port) as listening:
        where = f"{address(listening)}/"

        def started() -> None:
            print(f"cavia demo at {where} (Ctrl-C stops it)", flush=True)
            if browser:
                threading.Thread(target=webbrowser.open, args=[where], daemon=True).start()

        run(application(data_root), listening, started, draining=1)
        print("stopped", flush=True)
