"""Several ranks by torch.distributed: Gloo on CPUs, NCCL on GPUs. Slow to import, so import it only when needed."""

import atexit
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from cavia.errors import CaviaError, Diverged, Interrupted, one_line
from cavia.training.checkpoint import difference
from cavia.training.ranks import Packed, Ranks

T = TypeVar("T")

WITHOUT_END = timedelta(days=365)  # the others wait while the first rank validates
PATIENCE = 0.5  # seconds to wait for the message that a failing rank leaves before it exits
KINDS: dict[str, type[BaseException]] = {"Diverged": Diverged, "Interrupted": Interrupted}


class Group(Ranks):
    """Ranks that are connected.

    talk: process group for small messages on the CPU.
    data: process group for tensors on `device`.
    """

    def __init__(self, device: torch.device, name: str):
        self.number, self.count = dist.get_rank(), dist.get_world_size()
        self.name = name
        self._lost: CaviaError | None = None  # our error if another rank vanishes without a message
        self.talk = dist.new_group(backend="gloo", timeout=WITHOUT_END)
        self.data = dist.new_group(backend="nccl", timeout=WITHOUT_END) if device.type == "cuda" else self.talk

    def sum(self, values: Tensor) -> Tensor:
        with self._hearing():
            dist.all_reduce(values, group=self.talk if values.device.type == "cpu" else self.data)
        return values

    def mean(self, means: Tensor, tasks: int) -> Tensor:
        sums = self.sum(torch.cat([means * tasks, means.new_tensor([tasks])]))
        return sums[:-1] / sums[-1]

    def largest(self, value: int) -> int:
        shared = torch.tensor(value)
        with self._hearing():
            dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.talk)
        return int(shared)

    def from_first(self, find: Callable[[], T]) -> T:
        text = json.dumps(find()).encode() if self.is_first else b""
        size = self.largest(len(text))
        content = torch.frombuffer(bytearray(text.ljust(size)), dtype=torch.uint8)
        self.copy_from_first([content])
        received: T = json.loads(bytes(content.tolist()))
        return received

    def packed_from_first(self, find: Callable[[], Packed | None]) -> Packed | None:
        packed = find() if self.is_first else None
        tensors, own = packed or ({}, None)
        about = {name: (str(value.dtype).removeprefix("torch."), value.shape) for name, value in tensors.items()}
        kinds, description = self.from_first(lambda: (about, own))
        if description is None:
            return None
        like = {name: torch.empty(shape, dtype=getattr(torch, kind)) for name, (kind, shape) in kinds.items()}
        tensors = tensors or like
        self.copy_from_first(tensors.values())
        return tensors, description

    def copy_from_first(self, values: Iterable[Tensor]) -> None:
        with self._hearing(), torch.no_grad():
            for value in values:
                dense = value.contiguous()  # images may be channels-last in memory
                dist.broadcast(dense, 0, group=self.talk if value.device.type == "cpu" else self.data)
                value.copy_(dense)

    def wait(self) -> None:
        self.largest(0)

    def require_same(self, config: Callable[[], Mapping[str, Any]]) -> None:
        own = json.loads(json.dumps(config(), default=repr))
        if differs := difference(self.from_first(lambda: own), own, places=("on rank 0", f"on rank {self.number}")):
            raise CaviaError(f"the ranks must train the same run: {differs}")

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """Replace an error caused by another rank's exit by the message which that rank left, if any."""
        try:
            yield
        except RuntimeError as error:
            raise self._loss() from error

    def _loss(self) -> BaseException:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(RuntimeError):  # the store may have gone with the rank
                store = _store()
                if store.check([self.name]):
                    rank, kind, text = json.loads(store.get(self.name))
                    return KINDS.get(kind, CaviaError)(f"rank {rank}: {text}")
            time.sleep(0.05)
        self._lost = CaviaError(
            f"another of the {self.count} ranks has ended (killed, or out of memory?); run the same again to resume"
        )
        return self._lost

    def tell(self, error: BaseException) -> None:
        """Tell the other ranks why this one fails; the first message stays. A lost rank they notice themselves."""
        if error is self._lost:
            return
        kind = "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        text = one_line(str(error).strip() or type(error).__name__)
        with suppress(RuntimeError):
            _store().compare_set(self.name, "", json.dumps([self.number, kind, text]))

    def is_chosen(self) -> bool:
        """Whether this rank is the first to ask; true for every rank if the store is gone."""
        try:
            return bool(_store().compare_set(f"{self.name}/said", "", str(self.number)) == str(self.number).encode())
        except RuntimeError:
            return True

    def close(self) -> None:
        """Close the connections; ranks that wait for this one notice."""
        for group in {self.talk, self.data}:
            with suppress(RuntimeError):
                dist.destroy_process_group(group)


@contextmanager
def group(device: torch.device) -> Iterator[Group]:
    """All ranks, for one run. A rank that fails inside ends the run for all."""
    if not dist.is_initialized():
        _find_each_other(device)
    global _runs
    _runs += 1
    ranks = Group(device, f"cavia/{_runs}/failed")
    try:
        yield ranks
        ranks.wait()
    except BaseException as error:
        ranks.tell(error)
        _shown_by_one(error, ranks)
        raise
    finally:
        ranks.close()


def _shown_by_one(error: BaseException, ranks: Group) -> None:
    """If the error goes uncaught, only one rank prints it; a `CaviaError` as one line, without a traceback."""
    shows, default = ranks.is_chosen(), sys.excepthook

    def show(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
        if raised is not error:
            default(kind, raised, trace)
        elif shows and isinstance(error, CaviaError | Diverged | Interrupted):
            print(f"cavia: {error}", file=sys.stderr)
        elif shows:
            default(kind, raised, trace)

    sys.excepthook = show


_runs = 0  # of this process; equal on all ranks


def _find_each_other(device: torch.device) -> None:
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, timeout=WITHOUT_END)
    except (RuntimeError, ValueError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CaviaError(f"the ranks cannot find each other: {why}; start them by torchrun") from error
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()
