"""`cavia adapt` and `cavia predict` over folders of Parquet files: streamed here, or distributed over a Ray cluster."""

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cavia.cli.arguments import a_store, on_ray, shown_text
from cavia.errors import CaviaError, Interrupted

if TYPE_CHECKING:  # they import PyTorch
    from cavia.streaming.files import Part
    from cavia.streaming.jobs import Done, Job

MANIFEST = "_cavia.json"  # names the model and data of a folder of predictions


def add_adapt_arguments(adapt: Any) -> None:
    """Arguments for where to store contexts, and where to compute."""
    adapt.add_argument("--store", type=a_store, help="the store's file or postgresql:// URL; another name for --out")
    _add_on(adapt)


def add_predict_arguments(predict: Any) -> None:
    """Arguments for where to compute."""
    _add_on(predict)


def _add_on(command: Any) -> None:
    command.add_argument(
        "--on", type=on_ray, metavar="ray[://HOST:PORT]", help="run on a Ray cluster; see docs/scaling.md"
    )


def streams(options: argparse.Namespace) -> bool:
    """Whether to stream a few row groups at a time: for a folder or an address, a cluster, or lists of points."""
    return (
        options.on is not None
        or isinstance(options.table, str)
        or options.table.is_dir()
        or (options.table.suffix.lower() in (".parquet", ".pq") and not _is_of_a_table(options.model))
    )


def adapt_stream(options: argparse.Namespace, place: Path | str) -> None:
    """Write every task's context to the store at a place."""
    from cavia.streaming.jobs import Job, as_text, content_of, opened_job

    store = str(place)
    _require_shared(options.on, store)
    job = Job(content_of(options.model), str(options.model), store, steps=options.steps)
    with opened_job(job) as (model, there):
        done = _run(job, _parts(options.table, model.task), options.on)
        count, path = len(there), there.path
    print(f"{as_text(done)} adapted to; written: {path}, which holds {count:,} contexts")


def predict_stream(options: argparse.Namespace) -> None:
    """Write every row's prediction to a folder of Parquet files."""
    from cavia.cluster.storage import Storage
    from cavia.streaming.jobs import Job, as_text, content_of, opened_job

    out, store = str(options.out), str(options.contexts)
    out = "predictions" if out == "predictions.csv" else out  # the default
    if Path(out).suffix:
        raise CaviaError(f"--out {shown_text(out)} must be a folder: predictions of many parts are many files")
    _require_shared(options.on, store)
    out = Storage(out).address
    job = Job(content_of(options.model), str(options.model), store, out, None, options.unknown, options.interval)
    with opened_job(job) as (model, _):
        parts = _parts(options.table, model.task)
        files = list(dict.fromkeys(part.file for part in parts))
        _require_apart(out, str(options.table), files)
        about = {"model": model.version, "files": files, "unknown": options.unknown, "interval": options.interval}
        _claim(out, about)
        done = _run(job, parts, options.on)
    print(f"{as_text(done)} predicted; written: {out}")


def _parts(data: Any, task: str) -> "list[Part]":
    from cavia.streaming.files import data_files, find_parts

    return find_parts(data_files(str(data)), task)


def _run(job: "Job", parts: "list[Part]", on: str | None) -> "Done":
    from cavia.cluster.connection import connected
    from cavia.streaming.running import run_here, run_on

    try:
        with nullcontext() if on is None else connected(on) as cluster:
            return run_here(job, parts) if cluster is None else run_on(cluster, job, parts)
    except KeyboardInterrupt:
        raise Interrupted("stopped; what is written is kept, and the same command writes all of it") from None


def _require_shared(on: str | None, store: str) -> None:
    if on is not None and "://" not in store:
        raise CaviaError(f"a store in a file is for one machine: {shown_text(store)}; give --on a postgresql:// URL")


def _require_apart(out: str, data: str, files: "list[str]") -> None:
    """Raise if predictions would be written among the data, where the next command would read them as such."""
    if "://" in out or "://" in data:
        inside = f"{out}/".startswith(f"{data.rstrip('/')}/")
    else:
        place = Path(out).resolve()
        folder = Path(data).resolve()
        inside = place == folder.parent if folder.is_file() else place.is_relative_to(folder)
    if inside:
        raise CaviaError(f"--out {shown_text(out)} is among the data in {shown_text(data)}; choose a folder elsewhere")


def _claim(out: str, about: dict[str, Any]) -> None:
    """Claim the folder for these predictions, or raise if it holds others."""
    import json

    from cavia.cluster.storage import Storage

    text = json.dumps(about, indent=2, sort_keys=True).encode()
    there = Storage(out).read(MANIFEST)
    if there is not None and there != text:
        raise CaviaError(f"{out} holds predictions of another model or other data; choose another folder")
    Storage(out).write({MANIFEST: text})


def _is_of_a_table(model: Path) -> bool:
    from cavia.tensor_file import read_description

    extra = read_description(model).get("extra")
    return isinstance(extra, dict) and "table" in extra
