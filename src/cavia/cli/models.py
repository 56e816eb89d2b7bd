"""Using trained models: list the published ones, evaluate, complete, watch."""

import argparse
from pathlib import Path
from typing import Any

from cavia.cli.arguments import DATA, a_path, at_least
from cavia.errors import CaviaError

# Limits of the commands' numbers: tasks and steps take time, pictures take memory.
MOST = {"tasks": 10**6, "steps": 10**4, "seed": 2**63 - 1, "task": 10**5, "updates": 100, "size": 1024, "width": 4096}
MODEL = "a model.cavia, the folder of the cell that trained it, or the name of a published model (`cavia models`)"


def add_model_commands(commands: Any) -> None:
    """`cavia models`, `evaluate`, `complete` and `watch`, as subcommands of a parser."""
    models = commands.add_parser(
        "models", help="list the trained models that come with the package", allow_abbrev=False
    )
    models.set_defaults(action=_models)

    evaluate = commands.add_parser("evaluate", help="score a trained model on new tasks", allow_abbrev=False)
    evaluate.add_argument("model", type=a_path, help=MODEL)
    evaluate.add_argument("--steps", type=int, help="gradient steps (default: as in training)")
    evaluate.add_argument("--tasks", type=at_least(1), help="number of tasks (default: 1000; for a policy 40)")
    evaluate.add_argument("--seed", type=int, default=1, help="the seed of the tasks (default: 1; results use 0)")
    evaluate.add_argument("--data-root", type=a_path, default=DATA, help="the folder of data sets (default: data)")
    evaluate.set_defaults(action=_evaluate)

    complete = commands.add_parser("complete", help="complete a picture from some of its pixels", allow_abbrev=False)
    complete.add_argument("model", type=a_path, help=MODEL)
    complete.add_argument("picture", type=a_path, help="a picture in any format that Pillow reads")
    complete.add_argument("--known", type=at_least(1), default=100, help="number of known pixels (default: 100)")
    complete.add_argument("--ordered", action="store_true", help="use the first pixels as known, not random ones")
    complete.add_argument("--size", type=at_least(1), default=32, help="resize to size × size pixels (default: 32)")
    complete.add_argument(
        "--width", type=at_least(1), default=256, help="width of each of the three panels (default: 256)"
    )
    complete.add_argument("--seed", type=int, default=0, help="the seed of the known pixels (default: 0)")
    complete.add_argument("--out", type=a_path, default=Path("out.png"), help="the PNG to write (default: out.png)")
    complete.set_defaults(action=_complete)

    watch = commands.add_parser("watch", help="watch a trained policy adapt to a task", allow_abbrev=False)
    watch.add_argument("model", type=a_path, help=MODEL)
    watch.add_argument("--task", type=int, default=0, help="the number of the test task (default: 0)")
    watch.add_argument(
        "--updates", type=int, default=2, help="number of updates, with an episode after each (default: 2)"
    )
    watch.add_argument("--seed", type=int, default=0, help="the seed of the episodes to adapt on (default: 0)")
    watch.add_argument(
        "--out",
        type=a_path,
        default=Path("out.gif"),
        help="a .gif, or a .png with eight frames of each episode (default: out.gif)",
    )
    watch.set_defaults(action=_watch)


def _check_numbers(options: argparse.Namespace) -> None:
    """Raise before any work if a number would take forever, or all memory."""
    for name, most in MOST.items():
        number = getattr(options, name, None)
        if number is not None and abs(number) > most:
            raise CaviaError(f"--{name} must be at most {most}, got {number}")


def _models(options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from cavia.published.models import published

    table = Table("name", "what it is", "on unseen tasks", "data", box=None, header_style="bold")
    for model in published().values():
        table.add_row(model.name, model.about, model.score, model.licence)
    Console().print(table)


def _evaluate(options: argparse.Namespace) -> None:
    _check_numbers(options)
    from cavia.evaluation.evaluate import evaluate
    from cavia.tools.opening import is_policy, open_trained

    if is_policy(options.model):
        _evaluate_policy(options)
        return
    learner, family, supports, query = open_trained(options.model, options.data_root)
    tasks = options.tasks or 1000
    for support in supports:
        scores = evaluate(learner, family, tasks, support, query, options.steps, options.seed, chunk=100)
        print(f"{tasks} tasks, {support} support points\n{scores}")


def _evaluate_policy(options: argparse.Namespace) -> None:
    from cavia.evaluation.evaluate import LIKELIEST, RETURN, evaluate
    from cavia.tools.opening import open_policy

    learner, env, rollouts, updates = open_policy(options.model)
    tasks = options.tasks or 40
    sampled, likeliest = evaluate(
        learner, env, tasks, rollouts, None, options.steps, options.seed, metric=[RETURN, LIKELIEST], updates=updates
    )
    print(f"{tasks} tasks, {rollouts} episodes each, sampled actions\n{sampled}")
    print(f"the same with mean actions\n{likeliest}")


def _complete(options: argparse.Namespace) -> None:
    _check_numbers(options)
    from cavia.pictures.complete import as_panels, complete
    from cavia.tensor_file import write_atomically
    from cavia.tools.opening import load_model

    if options.out.suffix.lower() != ".png" or options.out.resolve() == options.picture.resolve():
        raise CaviaError(f"--out must be a .png and not the picture itself, got {options.out}")
    learner = load_model(options.model)
    completed = complete(
        learner, options.picture, options.known, options.size, options.width, options.seed, options.ordered
    )
    write_atomically(options.out, as_panels(completed))
    print(f"pixel MSE {completed.mse:.4f} with {options.known} known pixels; written: {options.out}")


def _watch(options: argparse.Namespace) -> None:
    _check_numbers(options)
    from cavia.tensor_file import write_atomically
    from cavia.tools.watch import Watched

    kind = options.out.suffix.lower().lstrip(".")
    if kind not in ("gif", "png"):
        raise CaviaError(f"--out must be a .gif or a .png, got {options.out}")
    watched = Watched(options.model, options.task, options.updates, options.seed)
    write_atomically(options.out, watched.picture(kind))
    if watched.note:
        print(watched.note)
    task = ", ".join(f"{value:g}" for value in watched.task.flatten().tolist())
    returns = ", ".join(f"{value:.1f}" for value in watched.returns)
    print(f"task {task}: return after 0 … {options.updates} updates, mean actions: {returns}; written: {options.out}")
