"""What became of a misuse: a right result, a clear error, a raw one, or nothing said at all."""

import contextlib
import math
import multiprocessing
import os
import resource
import signal
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch

from cavia import Adapted, CaviaError, Diverged

RIGHT, CLEAR, RAW, SILENT = "right", "clear", "raw", "silently wrong"
SECONDS, BYTES = 10, 6 * 2**30  # CPU time and memory that a case may take before it counts as raw
PATIENCE = 300  # seconds by the clock, after which it hangs
AT_WORK = 20  # the same for a case that may last: it is at work by then, a server perhaps
LONGEST_LINE = 600
TOO_LONG = "no end"


class TooLong(BaseException):
    """Not an error that the library would catch."""


@dataclass(frozen=True)
class Case:
    """One misuse. `run` does it; `refuse` says why a normal return would be wrong, or None; `judge` looks at it.

    Where it `may_last`, a case without an end is a call that was taken: training, say.
    """

    target: str
    about: str
    value: Any
    run: Callable[[], Any]
    refuse: str | None = None
    judge: Callable[[Any], str | None] = lambda result: None
    may_last: bool = False


@dataclass(frozen=True)
class Outcome:
    kind: str
    target: str
    about: str
    value: str
    said: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.target}({self.about}={self.value}): {self.said}"


def show(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
    try:
        text = ascii(value)
    except Exception:  # an integer of more digits than Python writes
        text = f"<{type(value).__name__}>"
    return text if len(text) < 60 else text[:57] + "…"


def is_clear(message: str, about: str, value: Any) -> bool:
    """Whether a message is one line that names the value or the argument."""
    if not message or "\n" in message.strip() or len(message) > LONGEST_LINE:
        return False
    words = {about, about.replace("_", " "), about.strip("-"), type(value).__name__, show(value)[:20]}
    if isinstance(value, torch.Tensor | np.ndarray):
        words |= {str(tuple(value.shape)), str(list(value.shape)), str(value.dtype).removeprefix("torch.")}
    else:
        words |= {str(value)[:20], repr(value)[:20], repr(value)[1:-1][:20]}
    if isinstance(value, str):
        words |= {"".join(takewhile(str.isprintable, text))[:20] for text in (value, value.rstrip("/"))}
    if isinstance(value, list | tuple | dict | set | range):
        words |= {str(len(value)), *(repr(part)[:20] for part in list(value)[:3])}
        words |= {type(part).__name__ for part in list(value)[:3]}
    return any(word and word in message for word in words)


def all_finite(result: Any) -> bool:
    """Whether every number in a result is finite, as far as results are tensors, numbers or collections of them."""
    if isinstance(result, torch.Tensor):
        number = result.is_floating_point() and not result.is_meta and not result.is_sparse
        return not number or bool(result.isfinite().all())
    if isinstance(result, np.ndarray):
        return result.dtype.kind != "f" or bool(np.isfinite(result).all())
    if isinstance(result, float):
        return math.isfinite(result)
    if isinstance(result, Adapted | Mapping):
        return all(all_finite(value) for value in result.values())
    if is_dataclass(result) and not isinstance(result, type):
        return all(all_finite(getattr(result, entry.name)) for entry in fields(result))
    if isinstance(result, torch.nn.Module):
        return all_finite(dict(result.named_parameters()))
    if isinstance(result, list | tuple):
        return all(all_finite(value) for value in result)
    return True


def outcome(case: Case) -> Outcome:
    """Do it, and say what came of it."""

    def ended(kind: str, said: str = "") -> Outcome:
        return Outcome(kind, case.target, case.about, show(case.value), said[:300])

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = case.run()
            said = case.refuse or case.judge(result)
    except (CaviaError, Diverged) as error:
        clear = is_clear(str(error), case.about, case.value)
        return ended(CLEAR if clear else RAW, ("" if clear else "names no value: ") + str(error))
    except BaseException as error:
        if isinstance(error, TooLong):
            return ended(RIGHT if case.may_last else RAW, f"{TOO_LONG} within {SECONDS} s of CPU time")
        return ended(RAW, f"{type(error).__name__}: {error}")
    return ended(SILENT, said) if said else ended(RIGHT)


def outcomes(cases: Sequence[Case]) -> Iterator[Outcome]:
    """Each case's outcome, from a child process: one that hangs or dies takes no other with it."""
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as scratch:
        yield from _outcomes(cases, scratch)


def _outcomes(cases: Sequence[Case], scratch: str) -> Iterator[Outcome]:
    context, done = multiprocessing.get_context("fork"), 0
    while done < len(cases):
        stopped = False
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=_work, args=(cases[done:], send, scratch), daemon=False)
        child.start()
        send.close()
        try:
            while done < len(cases) and receive.poll(AT_WORK if cases[done].may_last else PATIENCE):
                result = receive.recv()
                if stopped := result is None:
                    break
                yield result
                done += 1
        except EOFError:
            child.join(SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # type: ignore[arg-type]
            child.join()
        if done < len(cases) and not stopped:  # the child hangs in this case, or died of it
            case = cases[done]
            kind = RIGHT if case.may_last and child.exitcode == -signal.SIGKILL else RAW
            yield Outcome(kind, case.target, case.about, show(case.value), f"no end, or exit code {child.exitcode}")
            done += 1


def _work(cases: Sequence[Case], send: Any, scratch: str) -> None:
    """In the child: limits on memory and time, the outcomes one by one."""
    os.setpgid(0, 0)
    tempfile.tempdir = scratch
    os.chdir(scratch)  # where paths that are taken for right ones are written to
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, _too_long)
    for case in cases:
        signal.setitimer(signal.ITIMER_PROF, SECONDS, 1)  # again and again: some code swallows whatever is raised
        result = outcome(case)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send.send(result)
        if result.said.startswith(TOO_LONG):  # whatever was broken off is not to be trusted any more
            send.send(None)
            break


def _too_long(*_: Any) -> None:
    raise TooLong


def count(outcomes: Sequence[Outcome]) -> Counter[str]:
    return Counter({RIGHT: 0, CLEAR: 0, RAW: 0, SILENT: 0}) + Counter(each.kind for each in outcomes)
