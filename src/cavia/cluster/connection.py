"""The connection to a Ray cluster; everything that can go wrong with it is a one-line error."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cavia.errors import CaviaError, missing_package, shown
from cavia.machine import cores

ANSWER = 5.0  # seconds in which a head takes a connection
SPEAK = 20.0  # seconds in which it says that it is one; a busy head takes its time
GONE = 20.0  # seconds of silence after which it is taken for dead
STORE = 200 * 2**20  # bytes of the object store of a cluster that we start ourselves
TRIES = 3  # to join a cluster from outside
FORM = "ray, or ray://host:10001"


def checked_on(on: str) -> str:
    """`ray` or `ray://host:port`; anything else is an error."""
    if on != "ray":
        _place(on.removeprefix("ray://") if on.startswith("ray://") else "", on)
    return on


class Cluster:
    """A cluster that this process is connected to.

    ray:  the module.
    head: where its head answers; None: it is on this machine, and ends with us.
    """

    def __init__(self, ray: Any, head: tuple[str, int] | None):
        self.ray, self.head = ray, head
        self._answered = self._asked = time.monotonic()
        self._resources: dict[str, float] = {}

    def resources(self) -> dict[str, float]:
        """The nodes' total resources ("CPU", "GPU") in the last few seconds; an error if the head is gone."""
        if time.monotonic() - self._asked > 2 or not self._resources:
            self._asked = time.monotonic()
            if self.head is not None and not answers(*self.head):
                if time.monotonic() - self._answered > GONE:
                    raise lost()
                return self._resources
            self._answered = time.monotonic()
            with speaking():
                self._resources = self.ray.cluster_resources()
        return self._resources


@contextmanager
def connected(on: str) -> Iterator[Cluster]:
    """A cluster, while the block runs: that of `ray://host:port`, else the one that Ray itself finds (its variable
    RAY_ADDRESS, or one that runs on this machine), else one on the cores of this machine."""
    try:
        import ray
    except ImportError:
        raise missing_package("--on ray", "Ray", "ray") from None
    address = os.environ.get("RAY_ADDRESS", "") if on == "ray" else on
    if ray.is_initialized():
        yield Cluster(ray, None)
        return
    head = _place(address.removeprefix("ray://"), address) if address and address not in ("auto", "local") else None
    if head is not None and not (answers(*head) and _speaks_grpc(*head)):
        raise CaviaError(f"no Ray cluster answers at {address}; start one with `ray start --head`, or fix the address")
    _be_quiet()
    quiet: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    try:
        if address and address != "local":
            _join(ray, address, quiet)
        else:
            _init_here(ray, address, quiet)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise CaviaError(f"cannot join the Ray cluster {address or 'on this machine'}: {_first_line(error)}") from None
    try:
        yield Cluster(ray, head)
    finally:
        with suppress(Exception):
            ray.shutdown()


@contextmanager
def speaking() -> Iterator[None]:
    """Around calls of Ray: a lost cluster becomes a one-line error."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise lost() from error
    except RuntimeError as error:
        if "ray" not in type(error).__module__.split("."):
            raise
        raise lost() from error


def lost() -> CaviaError:
    return CaviaError("the head of the Ray cluster is gone; once it is back, the same command resumes")


def answers(host: str, port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection((host, port), ANSWER).close()
    except OSError:
        return False
    return True


def _speaks_grpc(host: str, port: int) -> bool:
    """Whether the listener may be Ray: joining anything else would take minutes to fail."""
    try:
        import grpc
    except ImportError:
        return True
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=SPEAK)
        except grpc.FutureTimeoutError:
            return False
    return True


def _join(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    """Join a cluster; a busy head, which may not start the server for a client in time, is asked again."""
    for left in reversed(range(TRIES)):
        try:
            ray.init(address=address, **quiet)
            return
        except ConnectionError as error:
            if not left or "Initialization failure" not in str(error):
                raise
            with suppress(Exception):
                ray.shutdown()


def _init_here(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    """Join the cluster on this machine, or start one."""
    if address != "local":
        with suppress(ConnectionError):
            ray.init(address="auto", **quiet)
            return
    ray.init(address="local", num_cpus=cores(), object_store_memory=STORE, include_dashboard=False, **quiet)


def _place(text: str, address: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port[:6]) < 2**16:
        raise CaviaError(f"a Ray cluster is {FORM}, got {shown(address)}")
    return host, int(port)


def _be_quiet() -> None:
    """Silence Ray's pages of logs about dead nodes: whoever notices reports one line."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _first_line(error: BaseException) -> str:
    """Of what the error says; if it announces a traceback, with the last line of that."""
    first, *others = (str(error).strip() or type(error).__name__).splitlines()
    return f"{first} {others[-1].strip()}" if others and first.endswith(":") else first
