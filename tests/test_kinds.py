"""Arguments of a wrong kind are named at the door."""

import inspect
import resource
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import numpy as np
import pytest
import torch

import cavia
from cavia import machine
from cavia.kinds import checked


@checked
def call(
    count: int = 1,
    rate: float | None = None,
    first_order: bool = False,
    hidden: Sequence[int] = (),
    path: str | PathLike[str] = "",
    loss: str | Callable[[Any], Any] = "mse",
    x: torch.Tensor | None = None,
    names: Mapping[str, int] | None = None,
    span: tuple[float, float] = (0.0, 1.0),
    mode: Literal["a", "b"] = "a",
    kind: "type[cavia.Learner] | None" = None,
    model: "cavia.MLP | None" = None,
    unknown: "Nowhere | None" = None,  # noqa: F821
    *,
    anything: Any = None,
):
    return "called"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 1.5}, "count must be a whole number, got 1.5"),
        ({"count": True}, "count must be a whole number, got True"),
        ({"rate": "fast"}, "rate must be a number or None, got 'fast'"),
        ({"first_order": "no"}, "first_order must be True or False, got 'no'"),
        ({"first_order": 0}, "first_order must be True or False, got 0"),
        ({"hidden": 40}, r"hidden must be a sequence of whole numbers, got 40; for instance \(40, 40\)"),
        ({"hidden": "12"}, "hidden must be a sequence of whole numbers, got '12'"),
        ({"hidden": [1, "2"]}, r"hidden must be a sequence of whole numbers, got \[1, '2'\]"),
        ({"path": 3}, "path must be a string or a path, got 3"),
        ({"loss": None}, "loss must be a string or a function, got None"),
        ({"x": np.zeros(3)}, r"x must be a tensor or None, got a ndarray \[3\] of float64; use torch.as_tensor"),
        ({"names": {"a": "b"}}, "names must be a mapping of a string to a whole number or None, got {'a': 'b'}"),
        ({"span": (1.0,)}, r"span must be \(a number, a number\), got \(1.0,\)"),
        ({"mode": "c"}, "mode must be one of 'a', 'b', got 'c'"),
        ({"kind": int}, "kind must be a subclass of cavia.Learner or None, got a type"),
        ({"model": object()}, "model must be a cavia.MLP or None, got an object"),
        ({"count": 10**5000, "rate": object()}, "rate must be a number or None, got an object"),
        ({"rate": torch.zeros(2, 3)}, r"rate must be a number or None, got a Tensor \[2, 3\] of torch.float32"),
    ],
)
def test_a_wrong_kind_is_one_line_that_names_it(arguments, message):
    with pytest.raises(cavia.CaviaError, match=message) as caught:
        call(**arguments)
    assert "\n" not in str(caught.value)


def test_right_kinds_pass_by_position_and_by_name():
    assert call(np.int64(3), 2, np.bool_(True), np.array([1, 2]), span=[0, np.float32(1)]) == "called"
    assert call(kind=cavia.CAVIA, model=cavia.MLP(1, 1), unknown=3, anything=object(), path="a", loss=len) == "called"
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        call(other=3)


def test_constructors_are_checked_also_those_of_ones_own_classes_and_data_classes():
    class Own(cavia.CAVIA):
        def __init__(self, model, loss, extra: int):
            super().__init__(model, loss)
            self.extra = extra

    assert Own(cavia.MLP(1, 1), "mse", extra=3).extra == 3
    with pytest.raises(cavia.CaviaError, match="extra must be a whole number, got 'x'"):
        Own(cavia.MLP(1, 1), "mse", extra="x")
    with pytest.raises(cavia.CaviaError, match="first_order must be True or False, got 'no'"):
        cavia.CAVIA(cavia.MLP(1, 1), "mse", first_order="no")
    with pytest.raises(cavia.CaviaError, match="lr must be a number, got 'x'"):
        cavia.Adam(lr="x")

    @checked
    @dataclass(frozen=True)
    class Plain:
        size: int

    assert Plain(3).size == 3
    with pytest.raises(cavia.CaviaError, match="size must be a whole number, got None"):
        Plain(None)


def test_the_first_calls_may_come_from_several_threads():
    wrong = []

    @checked
    def late(count: int):
        return count

    def try_it():
        try:
            late("x")
        except cavia.CaviaError:
            return
        wrong.append("taken")

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_classes_have_their_constructors_signature():
    assert list(inspect.signature(cavia.ProtoNets).parameters) == ["model", "loss", "ways"]  # inherited
    assert list(inspect.signature(cavia.Sine).parameters) == ["amplitude", "phase", "x"]


@checked
def takes_memory(n: int, error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 4 bytes")])
def test_memory_that_runs_out_is_one_line_that_names_the_large_number(error):
    with pytest.raises(cavia.CaviaError, match=r"takes_memory ran out of memory with n=1000000000; choose less"):
        takes_memory(10**9, error)
    with pytest.raises(type(error)):  # no argument is to blame
        takes_memory(3, error)


def test_other_errors_pass_as_they_are():
    with pytest.raises(RuntimeError, match="something else"):
        takes_memory(10**9, RuntimeError("something else"))


def test_a_limit_of_the_process_counts_as_the_machines_memory(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2**30, 2**30))
    assert machine.memory() == 2**30
    with pytest.raises(cavia.CaviaError, match=r"a batch needs about 2 GB of memory, this machine has 1 GB"):
        machine.require_memory(2**31, "a batch")
