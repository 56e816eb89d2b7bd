"""TensorBoard, where it is installed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from cavia.training.checkpoint import RunFolder

Log: TypeAlias = Callable[[dict[str, float]], None]


@contextmanager
def event_log(folder: RunFolder | None, iteration: int) -> Iterator[Log]:
    """A function that writes a line of metrics as TensorBoard events into the run folder, if the folder wants them.

    iteration: where the run resumes; later events, left by a killed run, are superseded.
    """
    if folder is None or not folder.events:
        yield lambda line: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield lambda line: None
        return
    with SummaryWriter(folder.path / "tensorboard", purge_step=iteration + 1) as writer:

        def log(line: dict[str, float]) -> None:
            for name, value in line.items():
                if name != "iteration":
                    writer.add_scalar(name, value, int(line["iteration"]))

        yield log
