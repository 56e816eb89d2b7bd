"""The command line: list, run, evaluate, complete, watch, store, report; fit, adapt, predict, embed for own tables."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cavia.errors import CaviaError, Diverged, closest
from cavia.tables.commands import add_table_commands

if TYPE_CHECKING:
    from cavia.paper.schema import Result

MISUSE, FAILED, INTERRUPTED = 2, 1, 130
RUNS = Path("runs")
PLAN = Path("results/plan.toml")


class _Parser(argparse.ArgumentParser):
    """Argparse with errors of one line, and the closest known flag or command in it."""

    def error(self, message: str) -> NoReturn:
        raise CaviaError(f"{message}; see {self.prog} --help")

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [flag for action in self._flags(found) for flag in action.option_strings]
            raise CaviaError(f"unknown argument {unknown[0]!r}; {closest(unknown[0], known)}")
        return found

    def _flags(self, found: argparse.Namespace) -> list[argparse.Action]:
        commands = next(a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return commands.choices[found.command]._actions if found.command else self._actions

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            raise CaviaError(f"unknown {action.dest} {value!r}; {closest(str(value), action.choices)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        options = _parser().parse_args(arguments)
        options.action(options)
        if sys.stdout:
            sys.stdout.flush()
        return 0
    except CaviaError as error:
        print(f"cavia: {error}", file=sys.stderr)
        return MISUSE
    except Diverged as error:
        print(f"cavia: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # the reader of our output is gone, as with `cavia list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # no space where the output goes, a name that is too long, …
        print(f"cavia: {error.strerror or error}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt as error:
        print(f"cavia: {str(error) or 'interrupted'}", file=sys.stderr)
        return INTERRUPTED


def _parser() -> _Parser:
    from cavia import __version__

    parser = _Parser(prog="cavia", description="Fast context adaptation via meta-learning.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"cavia {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=_Parser)

    listing = commands.add_parser("list", help="the experiments, what they reproduce, how long they take, their state")
    listing.add_argument("--runs", type=Path, default=RUNS, help="where to look for runs (default: runs)")
    listing.set_defaults(action=_list)

    run = commands.add_parser("run", help="train and measure one experiment", allow_abbrev=False)
    run.add_argument("experiment", help="table1, fig3a, …; `cavia list` shows all")
    budget = run.add_mutually_exclusive_group()
    budget.add_argument("--quick", action="store_true", help="a budget of minutes (default)")
    budget.add_argument("--full", action="store_true", help="the paper's settings, to the letter")
    budget.add_argument("--first", action="store_true", help="a few cells of the full settings: a first look (table1)")
    budget.add_argument("--tuned", action="store_true", help="settings that we found to work better")
    run.add_argument("--out", type=Path, help="the run folder (default: runs/<budget>/<experiment>)")
    run.add_argument("--seeds", type=_count, default=1, help="training runs per cell (default: 1)")
    run.add_argument("--jobs", type=_count, help="cells at a time (default: one per core)")
    run.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, … (default: cpu)")
    run.add_argument("--data-root", type=Path, default=Path("data"), help="where data sets are (default: data)")
    run.add_argument("--data", choices=["files", "synthetic"], default="files", help="synthetic: drawn, none needed")
    run.add_argument("--filters", metavar="N[,N…]", help="of each convolution: short for --set filters=N")
    run.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting; repeatable")
    run.add_argument("--remeasure", action="store_true", help="measure trained cells again; nothing is trained again")
    run.set_defaults(action=_run)

    reproduce = commands.add_parser(
        "reproduce", help="train and measure the whole paper, by a plan", allow_abbrev=False
    )
    reproduce.add_argument("--plan", type=Path, default=PLAN, help="the plan (default: results/plan.toml)")
    reproduce.add_argument("--hours", type=_hours, help="stop after so many hours; the same command goes on later")
    reproduce.add_argument("--jobs", type=_count, help="cells at a time (default: one per core)")
    reproduce.add_argument("--only", metavar="NAME[,NAME…]", help="only these experiments")
    reproduce.add_argument("--dry-run", action="store_true", help="show what is done and what is left, and end")
    reproduce.add_argument("--remeasure", action="store_true", help="measure trained cells again")
    reproduce.add_argument("--publish", type=Path, metavar="FOLDER", help="copy what is finished, and its page, there")
    reproduce.add_argument("--runs", type=Path, default=RUNS, help="where to train (default: runs)")
    reproduce.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, … (default: cpu)")
    reproduce.add_argument("--data-root", type=Path, default=Path("data"), help="where data sets are (default: data)")
    reproduce.set_defaults(action=_reproduce)

    evaluate = commands.add_parser("evaluate", help="score a trained model on new tasks", allow_abbrev=False)
    evaluate.add_argument("model", type=Path, help="a model.cavia, or the folder of the cell that trained it")
    evaluate.add_argument("--steps", type=int, help="gradient steps (default: as in training)")
    evaluate.add_argument("--tasks", type=_count, help="how many tasks (default: 1000; of a policy 40)")
    evaluate.add_argument("--seed", type=int, default=1, help="which tasks (default: 1; results use 0)")
    evaluate.add_argument("--data-root", type=Path, default=Path("data"), help="where data sets are (default: data)")
    evaluate.set_defaults(action=_evaluate)

    complete = commands.add_parser("complete", help="complete a picture from some of its pixels", allow_abbrev=False)
    complete.add_argument("model", type=Path, help="a model.cavia, or the folder of the cell that trained it")
    complete.add_argument("picture", type=Path, help="a file of any format that Pillow reads")
    complete.add_argument("--known", type=_count, default=100, help="how many pixels are known (default: 100)")
    complete.add_argument("--ordered", action="store_true", help="the first pixels are known, not random ones")
    complete.add_argument("--size", type=_count, default=32, help="the network sees size × size (default: 32)")
    complete.add_argument("--width", type=_count, default=256, help="of each of the three panels (default: 256)")
    complete.add_argument("--seed", type=int, default=0, help="which pixels are known (default: 0)")
    complete.add_argument("--out", type=Path, default=Path("out.png"), help="the PNG to write (default: out.png)")
    complete.set_defaults(action=_complete)

    watch = commands.add_parser("watch", help="see a trained policy adapt to a task", allow_abbrev=False)
    watch.add_argument("model", type=Path, help="a model.cavia of fig6a … fig7c, or the folder of its cell")
    watch.add_argument("--task", type=int, default=0, help="which of the test tasks (default: 0)")
    watch.add_argument("--updates", type=int, default=2, help="one episode after each number of them (default: 2)")
    watch.add_argument("--seed", type=int, default=0, help="of the episodes that it adapts on (default: 0)")
    watch.add_argument("--out", type=Path, default=Path("out.gif"), help="a .gif, or a .png with a strip of frames")
    watch.set_defaults(action=_watch)

    store = commands.add_parser("store", help="look into a store of adapted contexts", allow_abbrev=False)
    store.add_argument("store", type=Path, help="the file that cavia.ContextStore wrote")
    store.add_argument("--nearest", metavar="ID", help="show the tasks whose contexts are nearest to this one's")
    store.add_argument("--k", type=_count, default=10, help="how many of them (default: 10)")
    store.add_argument("--export", type=Path, metavar="FILE", help="write everything to a Parquet file")
    store.set_defaults(action=_store)

    report = commands.add_parser("report", help="write a page with all results beside the paper's", allow_abbrev=False)
    report.add_argument("folders", type=Path, nargs="*", default=[RUNS], help="where results are (default: runs)")
    report.add_argument("--out", type=Path, default=Path("report"), help="folder of the page (default: report)")
    report.set_defaults(action=_report)
    add_table_commands(commands)
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 < hours < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return hours


def _list(options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from cavia.paper.catalogue import CATALOGUE

    names = ("quick", "full", "tuned")
    table = Table("id", "reproduces", *names, box=None, header_style="bold")
    for experiment in CATALOGUE.values():
        states = (
            f"{_duration(experiment.minutes[name])}, {_state(experiment, name, options.runs)}"
            if name in experiment.sets
            else "–"
            for name in names
        )
        table.add_row(experiment.id, experiment.reproduces, *states)
    Console().print(table)


def _duration(minutes: float) -> str:
    return f"{minutes:g} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def _state(experiment: Any, name: str, runs: Path) -> str:
    from cavia.paper.running.cells import Order
    from cavia.paper.running.runner import state

    return state(Order(experiment.id, name, runs / name / experiment.id))


def _run(options: argparse.Namespace) -> None:
    from cavia.paper.running.processes import start_server

    start_server(compiles=options.full or options.tuned or options.first)  # only long runs are compiled
    from cavia.kernels.build import without_compiler
    from cavia.paper.catalogue import find
    from cavia.paper.experiment import Data
    from cavia.paper.running.cells import Order
    from cavia.paper.running.runner import run

    name = next((name for name in ("full", "tuned", "first") if getattr(options, name)), "quick")
    if name == "first" and (why := without_compiler()):
        print(f"cavia: {why}; training for a shorter time instead (--quick)", file=sys.stderr)
        name = "quick"
    changes = ({"filters": options.filters} if options.filters else {}) | dict(map(_setting, options.set))
    find(options.experiment).settings(name, changes)  # misuse shows before anything is written
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
        **({"jobs": options.jobs} if options.jobs else {}),
    )
    _show(run(order))
    print(f"written: {order.out / 'result.json'}")


def _reproduce(options: argparse.Namespace) -> None:
    from cavia.paper.running.processes import start_server

    if not (options.dry_run or options.publish):
        start_server(compiles=True)
    from cavia.paper.experiment import Data
    from cavia.paper.plan import read_plan
    from cavia.paper.reproduce import Reproduction

    _check_device(options.device)
    data = Data(options.data_root)
    work = Reproduction(
        read_plan(options.plan), options.runs, data, options.device, options.jobs or 0, options.remeasure
    )
    if options.only:
        work = work.only([name.strip() for name in options.only.split(",")])
    if options.publish:
        names = work.publish(options.publish)
        print(f"published to {options.publish}: {', '.join(names) or 'nothing, no experiment is finished'}")
        return
    if not options.dry_run and not work.run(options.hours or float("inf")):
        print("the time is up; the same command goes on", file=sys.stderr)
    _show_status(work)


def _show_status(work: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("experiment", "set", "settings", "cells", "hours spent", "hours left", box=None, header_style="bold")
    found = work.status()
    for one in found:
        settings = ", ".join(f"{name} {value}" for name, value in one.entry.settings.items())
        cells = f"{one.finished} of {one.cells}"
        table.add_row(one.entry.experiment, one.entry.set, settings, cells, f"{one.hours:.1f}", f"{one.left:.1f}")
    Console().print(table, highlight=False, markup=False)
    print(f"{sum(one.left for one in found):.1f} core-hours left, by what is known so far")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CaviaError(f"--set takes name=value, got {text!r}")
    return name, value


def _show(result: "Result") -> None:
    from rich.console import Console

    from cavia.paper.report.tables import text_table

    console = Console()
    console.print(f"{result['reproduces']} ({result['budget']} budget)", style="bold", highlight=False)
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


def _evaluate(options: argparse.Namespace) -> None:
    from cavia.evaluation.evaluate import evaluate
    from cavia.tools.opening import is_policy, open_trained

    if is_policy(options.model):
        _evaluate_policy(options)
        return
    learner, family, supports, query = open_trained(options.model, options.data_root)
    tasks = options.tasks or 1000
    for support in supports:
        found = evaluate(learner, family, tasks, support, query, options.steps, options.seed, chunk=100)
        print(f"{tasks} tasks, {support} support points\n{found}")


def _evaluate_policy(options: argparse.Namespace) -> None:
    from cavia.evaluation.evaluate import LIKELIEST, RETURN, evaluate
    from cavia.tools.watch import open_policy

    learner, env, rollouts, updates = open_policy(options.model)
    tasks = options.tasks or 40
    found = evaluate(
        learner, env, tasks, rollouts, None, options.steps, options.seed, metric=[RETURN, LIKELIEST], updates=updates
    )
    print(f"{tasks} tasks, {rollouts} episodes each, sampled actions\n{found[0]}")
    print(f"the same with mean actions\n{found[1]}")


def _complete(options: argparse.Namespace) -> None:
    from cavia.tensor_file import write_atomically
    from cavia.tools.complete import as_panels, complete
    from cavia.tools.opening import load_model

    if options.out.suffix.lower() != ".png" or options.out.resolve() == options.picture.resolve():
        raise CaviaError(f"--out must be a .png and not the picture itself, got {options.out}")
    learner = load_model(options.model)
    found = complete(
        learner, options.picture, options.known, options.size, options.width, options.seed, options.ordered
    )
    write_atomically(options.out, as_panels(found))
    print(f"pixel MSE {found.mse:.4f} with {options.known} known pixels; written: {options.out}")


def _watch(options: argparse.Namespace) -> None:
    from cavia.tensor_file import write_atomically
    from cavia.tools.watch import Watched

    kind = options.out.suffix.lower().lstrip(".")
    if kind not in ("gif", "png"):
        raise CaviaError(f"--out must be a .gif or a .png, got {options.out}")
    found = Watched(options.model, options.task, options.updates, options.seed)
    write_atomically(options.out, found.picture(kind))
    if found.note:
        print(found.note)
    task = ", ".join(f"{value:g}" for value in found.task.flatten().tolist())
    returns = ", ".join(f"{value:.1f}" for value in found.returns)
    print(f"task {task}: return after 0 … {options.updates} updates, mean actions: {returns}; written: {options.out}")


def _store(options: argparse.Namespace) -> None:
    from cavia.store.contexts import ContextStore

    with ContextStore(options.store) as store:
        ids, contexts = next(store.batches(1), ([], None))
        kind = f" of {contexts.shape[1]} numbers ({contexts.dtype})" if contexts is not None else ""
        print(f"{len(store)} contexts{kind} of model version {store.version}")
        if options.nearest is not None:
            numbers = bool(ids) and isinstance(ids[0], int) and options.nearest.lstrip("-").isdecimal()
            for found, distance in store.nearest([int(options.nearest) if numbers else options.nearest], options.k)[0]:
                print(f"{distance:.6g}  {found}")
        if options.export:
            store.export(options.export)
            print(f"written: {options.export}")


def _report(options: argparse.Namespace) -> None:
    from cavia.paper.report.page import write_report

    print(f"written: {write_report(options.folders, options.out)}")


if __name__ == "__main__":
    sys.exit(main())
