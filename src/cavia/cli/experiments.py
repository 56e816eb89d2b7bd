"""The paper's experiments: list, run, reproduce, report."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cavia.cli.arguments import DATA, RUNS, a_path, at_least, hours, on_ray, shown_text
from cavia.errors import CaviaError, named

if TYPE_CHECKING:
    from cavia.paper.running.workers import Workers
    from cavia.paper.schema import Result

PLAN = Path("results/plan.toml")


def add_experiment_commands(commands: Any) -> None:
    """`cavia list`, `run`, `reproduce` and `report`, as subcommands of a parser."""
    listing = commands.add_parser("list", help="list all experiments with their cost and state")
    listing.add_argument("--runs", type=a_path, default=RUNS, help="where to look for runs (default: runs)")
    listing.set_defaults(action=_list)

    run = commands.add_parser("run", help="train and measure one experiment", allow_abbrev=False)
    run.add_argument("experiment", help="table1, fig3a, …; `cavia list` shows all")
    budget = run.add_mutually_exclusive_group()
    budget.add_argument("--quick", action="store_true", help="smaller settings that take minutes (default)")
    budget.add_argument("--full", action="store_true", help="exactly the paper's settings")
    budget.add_argument(
        "--first", action="store_true", help="a few cells with the full settings, for a first look (table1)"
    )
    budget.add_argument("--tuned", action="store_true", help="settings that we found to work better than the paper's")
    run.add_argument("--out", type=a_path, help="the run folder (default: runs/<budget>/<experiment>)")
    run.add_argument("--seeds", type=at_least(1), default=1, help="number of random seeds (default: 1)")
    run.add_argument("--jobs", type=at_least(1), help="training runs at a time (default: one per core)")
    run.add_argument("--ranks", type=at_least(1), default=1, help="processes that share a training run (default: 1)")
    _add_cluster_arguments(run)
    run.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, … (default: cpu)")
    run.add_argument("--data-root", type=a_path, default=DATA, help="the folder of data sets (default: data)")
    run.add_argument(
        "--data", choices=["files", "synthetic"], default="files", help="synthetic: generated data, no files needed"
    )
    run.add_argument("--filters", metavar="N[,N…]", help="filters per convolution; short for --set filters=N")
    run.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting; repeatable")
    run.add_argument("--remeasure", action="store_true", help="measure trained models again, without training")
    run.set_defaults(action=_run)

    reproduce = commands.add_parser(
        "reproduce", help="train and measure the whole paper, following a plan", allow_abbrev=False
    )
    reproduce.add_argument("--plan", type=a_path, default=PLAN, help="the plan (default: results/plan.toml)")
    reproduce.add_argument("--hours", type=hours, help="stop after this many hours; the same command resumes later")
    reproduce.add_argument("--jobs", type=at_least(1), help="training runs at a time (default: one per core)")
    _add_cluster_arguments(reproduce)
    reproduce.add_argument("--only", metavar="NAME[,NAME…]", help="only these experiments")
    reproduce.add_argument("--dry-run", action="store_true", help="show what is finished and what is left, then exit")
    reproduce.add_argument("--remeasure", action="store_true", help="measure trained models again, without training")
    reproduce.add_argument(
        "--publish", type=a_path, metavar="FOLDER", help="copy finished results there and write their report"
    )
    reproduce.add_argument(
        "--from",
        dest="begin_from",
        type=a_path,
        metavar="FOLDER",
        help="begin with the results published there: what is finished is not trained again, what is not goes on",
    )
    reproduce.add_argument("--runs", type=a_path, default=RUNS, help="where to train (default: runs)")
    reproduce.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, … (default: cpu)")
    reproduce.add_argument("--data-root", type=a_path, default=DATA, help="the folder of data sets (default: data)")
    reproduce.set_defaults(action=_reproduce)

    report = commands.add_parser("report", help="write a page with all results next to the paper's", allow_abbrev=False)
    report.add_argument("folders", type=a_path, nargs="*", default=[RUNS], help="folders with results (default: runs)")
    report.add_argument(
        "--out", type=a_path, default=Path("report"), help="the folder to write the page to (default: report)"
    )
    report.set_defaults(action=_report)


def _add_cluster_arguments(command: Any) -> None:
    command.add_argument(
        "--on", type=on_ray, metavar="ray[://HOST:PORT]", help="run on a Ray cluster; see docs/scaling.md"
    )
    storage = "with --on: keep checkpoints in this folder or at this address (s3://…); all nodes must reach it"
    command.add_argument("--storage", metavar="ADDRESS", help=storage)


def _list(options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from cavia.paper.catalogue import CATALOGUE

    names = ("quick", "full", "tuned")
    narrow = [Column(name, no_wrap=True) for name in ("id", *names)]
    table = Table(narrow[0], "reproduces", *narrow[1:], box=None, header_style="bold")
    shown_beyond = False
    for experiment in CATALOGUE.values():
        if experiment.beyond and not shown_beyond:
            shown_beyond = True
            table.add_row("", "beyond the paper:", style="bold")
        states = (
            _duration(experiment.minutes[name]) + _state(experiment, name, options.runs)
            if name in experiment.sets
            else "–"
            for name in names
        )
        table.add_row(experiment.id, experiment.reproduces, *states)
    Console().print(table)


def _duration(minutes: float) -> str:
    return f"{minutes:g} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def _state(experiment: Any, name: str, runs: Path) -> str:
    """`, finished` or `, 3 of 13 cells`; nothing for what is not run."""
    from cavia.paper.running.orders import Order
    from cavia.paper.running.runner import NOT_RUN, state

    how_far = state(Order(experiment.id, name, runs / name / experiment.id))
    return "" if how_far == NOT_RUN else f", {how_far}"


def _run(options: argparse.Namespace) -> None:
    if options.on is None:
        from cavia.paper.running.processes import start_server

        start_server(compiles=options.full or options.tuned or options.first)  # only long runs are compiled
    from cavia.kernels.build import without_compiler
    from cavia.paper.catalogue import find
    from cavia.paper.experiment import Data
    from cavia.paper.running.orders import Order
    from cavia.paper.running.runner import run

    name = next((name for name in ("full", "tuned", "first") if getattr(options, name)), "quick")
    if name == "first" and (why := without_compiler()):
        print(f"cavia: {why}; training for a shorter time instead (--quick)", file=sys.stderr)
        name = "quick"
    changes = ({"filters": options.filters} if options.filters else {}) | dict(map(_setting, options.set))
    find(options.experiment).settings(name, changes)  # report misuse before anything is written
    if options.on is None:
        _check_device(options.device)
    order = Order(
        options.experiment,
        name,
        options.out or RUNS / name / options.experiment,
        changes,
        options.seeds,
        options.device,
        Data(options.data_root, options.data == "synthetic"),
        remeasure=options.remeasure,
        ranks=options.ranks,
        **({"jobs": options.jobs} if options.jobs else {}),
    )
    with _workers(options) as where:
        result = run(order, where)
    _show(result)
    print(f"written: {order.out / 'result.json'}")


def _reproduce(options: argparse.Namespace) -> None:
    if not (options.dry_run or options.publish or options.on):
        from cavia.paper.running.processes import start_server

        start_server(compiles=True)
    from cavia.machine import cores
    from cavia.paper.experiment import Data
    from cavia.paper.plan import read_plan
    from cavia.paper.reproduce import Reproduction

    if options.on is None:
        _check_device(options.device)
    how = {"device": options.device, "data": Data(options.data_root), "remeasure": options.remeasure}
    work = Reproduction(read_plan(options.plan, options.runs, **how), options.jobs or cores())
    if options.only:
        work = work.only([name.strip() for name in options.only.split(",")])
    if options.begin_from:
        if not options.begin_from.is_dir():
            raise CaviaError(f"--from: there is no folder {named(options.begin_from)}; name one with published results")
        print(f"copied from {options.begin_from}: {work.begin_from(options.begin_from)} cells")
    if options.publish:
        names = work.publish(options.publish)
        print(f"published to {options.publish}: {', '.join(names) or 'nothing, no experiment is finished'}")
        return
    if not options.dry_run:
        with _workers(options) as where:
            finished = work.run(options.hours or float("inf"), where)
        if not finished:
            print("time is up; the same command resumes", file=sys.stderr)
    _show_status(work)


@contextmanager
def _workers(options: argparse.Namespace) -> "Iterator[Workers | None]":
    """The cluster's workers; None: those of this machine."""
    ranks = getattr(options, "ranks", 1)
    if options.on is None:
        if options.storage:
            raise CaviaError(f"--storage {shown_text(options.storage)} is for runs on a cluster; add --on ray")
        yield None if ranks == 1 else _ranked(options.jobs, ranks)
        return
    if ranks > 1:
        raise CaviaError(f"--ranks {ranks} is for this machine, --on for a cluster; leave out one of them")
    from cavia.cluster.connection import connected
    from cavia.paper.running.ray_workers import RayWorkers

    with (
        connected(options.on) as cluster,
        closing(RayWorkers(cluster, options.jobs, options.storage, options.device)) as workers,
    ):
        yield workers


def _ranked(jobs: int | None, ranks: int) -> "Workers":
    """Several processes per cell, with a warning if there are more processes than cores."""
    from cavia.machine import cores
    from cavia.paper.running.ranked import RankedWorkers, too_many

    jobs = jobs or max(1, cores() // ranks)
    workers = RankedWorkers(jobs, ranks)  # raises if this is impossible
    if line := too_many(jobs, ranks):
        print(f"cavia: {line}", file=sys.stderr)
    return workers


def _show_status(work: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from cavia.paper.reproduce import status

    table = Table("experiment", "set", "settings", "cells", "hours spent", "hours left", box=None, header_style="bold")
    statuses = [status(order) for order in work.orders]
    for one in statuses:
        settings = ", ".join(f"{name} {value}" for name, value in one.order.changes.items())
        cells = f"{one.finished} of {one.cells}"
        table.add_row(one.order.experiment, one.order.set, settings, cells, f"{one.hours:.1f}", f"{one.left:.1f}")
    Console().print(table, highlight=False, markup=False)
    print(f"about {sum(one.left for one in statuses):.1f} core-hours left")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CaviaError(f"--set takes name=value, got {text!r}")
    return name, value


def _show(result: "Result") -> None:
    from rich.console import Console

    from cavia.paper.report import budgets
    from cavia.paper.report.tables import text_table

    console = Console()
    what = f"{result['reproduces']} (budget: {budgets.label(result)})"
    console.print(what, style="bold", highlight=False, markup=False)
    for table in result.get("tables", []):
        console.print(text_table(table))
    for claim in result.get("claims", []):
        mark = "holds" if claim["holds"] else "does not hold"
        console.print(f"{claim['claim']} — {mark}: {claim['evidence']}", highlight=False, markup=False)


def _check_device(name: str) -> None:
    import torch

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise CaviaError(f"device {name!r} cannot be used here ({why}); try --device cpu") from error


def _report(options: argparse.Namespace) -> None:
    from cavia.paper.report.page import write_report

    print(f"written: {write_report(options.folders, options.out)}")
