"""A user's own table: fit, adapt, predict, embed."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cavia.cli.arguments import (
    a_path,
    a_store,
    at_least,
    in_flags,
    listed,
    positive,
    require_writable,
    shown_text,
    widths,
)
from cavia.cli.streaming import adapt_stream, add_adapt_arguments, add_predict_arguments, predict_stream, streams
from cavia.errors import MOST_STEPS, CaviaError

if TYPE_CHECKING:  # they import PyTorch
    from cavia.tables.model import TableModel
    from cavia.tables.reading import Table
    from cavia.tables.tasks import Tasks


def add_table_commands(commands: Any) -> None:
    """`cavia fit`, `adapt`, `predict` and `embed`, as subcommands of a parser."""
    _add_fit(commands)

    adapt = commands.add_parser("adapt", help="adapt to the tasks of a table, store contexts", allow_abbrev=False)
    adapt.add_argument("model", type=a_path, help="a file written by `cavia fit`")
    adapt.add_argument("table", type=a_store, help="rows with the target to adapt on: a file, or Parquet in a folder")
    adapt.add_argument("--steps", type=at_least(0, MOST_STEPS), help="gradient steps (default: as in training)")
    adapt.add_argument(
        "--out",
        type=a_store,
        help="the store to create or add to: a file or a postgresql:// URL (default: contexts)",
    )
    add_adapt_arguments(adapt)
    adapt.set_defaults(action=in_flags(_adapt))

    predict = commands.add_parser(
        "predict", help="predict the rows of a table, each with its task's context", allow_abbrev=False
    )
    predict.add_argument("model", type=a_path, help="a file written by `cavia fit`")
    predict.add_argument("table", type=a_store, help="rows to predict, without targets: a file, or Parquet in a folder")
    predict.add_argument("--contexts", type=a_store, required=True, help="a store written by `cavia adapt`")
    predict.add_argument(
        "--unknown",
        choices=["refuse", "start"],
        default="refuse",
        help="tasks without a context: refuse them (default), or predict them without adaptation",
    )
    predict.add_argument("--interval", type=float, help="a coverage such as 0.9; adds the columns low and high")
    predict.add_argument(
        "--out", type=a_path, default=Path("predictions.csv"), help="a CSV file, or a folder for Parquet files"
    )
    add_predict_arguments(predict)
    predict.set_defaults(action=in_flags(_predict))

    embed = commands.add_parser("embed", help="plot the contexts of a table's tasks", allow_abbrev=False)
    embed.add_argument("model", type=a_path, help="a file written by `cavia fit`")
    embed.add_argument("table", type=a_path, help="rows with the target to adapt on")
    embed.add_argument("--colour", help="the column to colour tasks by: its mean, or its most frequent value")
    embed.add_argument("--steps", type=at_least(0, MOST_STEPS), help="gradient steps (default: as in training)")
    embed.add_argument("--out", type=a_path, default=Path("embedding.png"), help="a PNG; a CSV is written next to it")
    embed.set_defaults(action=in_flags(_embed))


def _add_fit(commands: Any) -> None:
    """`cavia fit`."""
    fit = commands.add_parser("fit", help="train on a table with a task column", allow_abbrev=False)
    fit.add_argument("table", type=a_path, help="a .csv, .tsv or .parquet file, one row per point")
    fit.add_argument("--task", required=True, help="the column that names the task (user, shop, …) of a row")
    fit.add_argument("--target", type=listed, required=True, help="the column to predict, or several of numbers: a,b")
    fit.add_argument("--inputs", type=listed, help="columns to predict from, a,b,c (default: all others)")
    fit.add_argument("--number", type=listed, default=[], help="columns to read as numbers, a,b")
    fit.add_argument("--category", type=listed, default=[], help="columns to read as categories, even if numbers")
    fit.add_argument("--date", type=listed, default=[], help="columns to read as dates")
    problem = fit.add_mutually_exclusive_group()
    for name, what in (("classification", "classes"), ("regression", "numbers")):
        problem.add_argument(f"--{name}", dest="problem", action="store_const", const=name, help=f"targets are {what}")
    _add_settings(fit)
    fit.add_argument("--compare", action="store_true", help="print other methods' scores on the same unseen tasks")
    fit.add_argument(
        "--search",
        type=at_least(1, 10_000),
        metavar="N",
        help="first search N settings of method, hidden, context, rates and steps on validation tasks (needs Optuna)",
    )
    fit.add_argument("--out", type=a_path, default=Path("model.cavia"), help="the file to write (default: model.cavia)")
    fit.set_defaults(action=in_flags(_fit))


def _add_settings(fit: argparse.ArgumentParser) -> None:
    """Arguments for the model and its training."""
    fit.add_argument(
        "--method",
        choices=["posterior", "gradient"],
        default="posterior",
        help="posterior: a mixed model plus a network, adapted by Newton's step; gradient: as in the paper",
    )
    fit.add_argument("--hidden", type=widths, default=(64, 64), help="widths of the hidden layers (default: 64,64)")
    fit.add_argument("--context", type=at_least(1), default=8, help="number of context parameters (default: 8)")
    fit.add_argument("--inner-lr", type=positive, default=0.5, help="learning rate of gradient steps (default: 0.5)")
    fit.add_argument(
        "--inner-steps",
        type=at_least(1, MOST_STEPS),
        help="steps per task (default: 2 gradient, 1 or 4 Newton steps)",
    )
    fit.add_argument("--support", type=at_least(1), default=10, help="rows per task to adapt on (default: 10)")
    fit.add_argument(
        "--order", choices=["random", "ordered"], default="random", help="ordered: adapt on a task's first rows"
    )
    fit.add_argument(
        "--too-small",
        choices=["refuse", "drop"],
        default="refuse",
        help="tasks with fewer than 2 rows: refuse the table (default), or drop them",
    )
    fit.add_argument("--iterations", type=at_least(1), default=600, help="outer steps (default: 600)")
    fit.add_argument("--tasks-per-batch", type=at_least(1), default=25, help="tasks per outer step (default: 25)")
    fit.add_argument("--lr", type=positive, default=1e-3, help="outer learning rate (default: 0.001)")
    fit.add_argument(
        "--seed", type=at_least(0, 2**63 - 1), default=0, help="the seed of splits, weights and batches (default: 0)"
    )


def _fit(options: argparse.Namespace) -> None:
    from cavia.tables.describing import describe_columns
    from cavia.tables.fitting import fit_table
    from cavia.tables.resuming import folder_beside
    from cavia.tables.tasks import Tasks

    require_writable(options.out, options.table, suffix=".cavia")
    types = ("inputs", "number", "category", "date", "problem")
    read = ("task", "target", *types, "support", "order", "too_small", "seed")
    family = Tasks.from_table(options.table, **{name: getattr(options, name) for name in read})
    assert family.encoding  # set by from_table
    assert family.table is not None
    print(f"{options.table}:\n{describe_columns(family.encoding, family.table)}", flush=True)
    trained = ("method", "hidden", "context", "inner_lr", "inner_steps", "iterations", "tasks_per_batch", "lr", "seed")
    if options.search:
        _search(options, family)
    settings = {name: getattr(options, name) for name in trained}
    about = {"table": family.settings, "columns": family.encoding.as_json()}
    about |= {name: getattr(options, name) for name in ("support", "order", "too_small", *trained)}
    with folder_beside(options.out, about | {"hidden": list(options.hidden)}) as folder:
        fitted = fit_table(family, **settings, run_dir=folder)
        fitted.model.save(options.out)
    print(f"{fitted.summary()}\nwritten: {options.out}")
    if options.compare:
        from cavia.tables.comparing import as_text, compare

        print(as_text(*compare(fitted.model, family, options.seed), len(family.splits["test"])))


def _search(options: argparse.Namespace, family: "Tasks") -> None:
    """Replace the settings with the best ones on the validation tasks, and print the command that trains them."""
    from cavia.tables.searching import search_table, shown_settings

    path = options.out.with_name(f"{options.out.name}.search")
    print(
        f"search: loss on {len(family.splits['val'])} validation tasks; kept in {path}, resumes if stopped", flush=True
    )
    best = search_table(
        family,
        options.search,
        seed=options.seed,
        most_iterations=2 * options.iterations,
        path=path,
        tell=lambda line: print(line, flush=True),
    )
    count = f"{best.trials} setting{'s' * (best.trials != 1)}"
    print(f"{count} tried, lowest validation loss {best.loss:.5g} (defaults: {best.default:.5g}); this trains it:")
    asked = ["--task", options.task, "--target", ",".join(options.target)]
    kept = ("inputs", "number", "category", "date", "support", "order", "too_small", "seed")
    for name in kept:
        value = getattr(options, name)
        if value not in (None, [], *_FIT_DEFAULTS.get(name, ())):
            asked += [f"--{name.replace('_', '-')}", ",".join(value) if isinstance(value, list) else str(value)]
    asked += [f"--{options.problem}"] if options.problem else []
    words = ["cavia", "fit", str(options.table), *asked, "--out", str(options.out)]
    print(f"  {shlex.join(words)} {shown_settings(best.settings)}", flush=True)
    for name, value in best.settings.items():
        setattr(options, name, value)


_FIT_DEFAULTS = {"support": (10,), "order": ("random",), "too_small": ("refuse",), "seed": (0,)}


def _adapt(options: argparse.Namespace) -> None:
    if options.store and options.out:
        raise CaviaError(f"--store {options.store} and --out {options.out} are the same flag; give one of them")
    place = options.store or options.out or Path("contexts")
    if streams(options):
        adapt_stream(options, place)
        return
    from cavia.store.contexts import ContextStore
    from cavia.tables.model import load_table_model
    from cavia.tables.reading import read_table

    if isinstance(place, Path):
        require_writable(place, options.model, options.table)
    model = load_table_model(options.model)
    table = read_table(options.table)
    names, adapted, left_out = model.adapt(table, options.steps)
    with ContextStore(place, model.learner.version) as store:  # the learner does not change meanwhile
        store.put(names, adapted)
        count, where = len(store), store.path  # of a URL, without its password
    note = (f" ({left_out} rows without a target were left out)" if left_out else "") + _unknown(model, table)
    print(f"{len(names)} tasks adapted{note}; written: {where}, which holds {count} contexts")


def _predict(options: argparse.Namespace) -> None:
    if streams(options):
        predict_stream(options)
        return
    from cavia.store.contexts import ContextStore
    from cavia.tables.model import load_table_model
    from cavia.tables.writing import write_predictions

    file = options.contexts if isinstance(options.contexts, Path) else None
    require_writable(options.out, options.model, options.table, *([file] if file else []), suffix=".csv")
    model = load_table_model(options.model)
    if file and (not file.is_file() or not file.stat().st_size):
        raise CaviaError(
            f"there is no store {shown_text(str(options.contexts))}; `cavia adapt MODEL TABLE --out …` makes one"
        )
    with ContextStore(options.contexts, model.learner.version) as store:
        predictions: Any
        if options.interval is None:
            table, predictions, strangers = model.predict(options.table, store, options.unknown)
        else:
            table, predictions, strangers = model.predict_intervals(
                options.table, store, options.interval, options.unknown
            )
    write_predictions(options.out, table, predictions)
    note = (f" ({strangers} of tasks without a context)" if strangers else "") + _unknown(model, table)
    print(f"{table.rows} rows predicted{note}; written: {options.out}")


def _unknown(model: "TableModel", table: "Table") -> str:
    """A note on categories that training never saw, and on values that are missing as none was in training."""
    unseen, filled = (
        ", ".join(f"{name!r} in {count} rows" for name, count in counts.items())
        for counts in (model.encoding.unknown(table), model.encoding.filled(table))
    )
    said = f" (categories that training never saw: {unseen})" if unseen else ""
    return said + (f" (no value, as never in training: {filled})" if filled else "")


def _embed(options: argparse.Namespace) -> None:
    from cavia.tables.embedding import embed
    from cavia.tables.model import load_table_model

    if options.out.suffix.lower() != ".png":
        raise CaviaError(f"--out must be a .png, got {options.out}")
    beside = options.out.with_suffix(".csv")
    require_writable(options.out, options.model, options.table, suffix=".png")
    require_writable(beside, options.model, options.table, suffix=".csv")
    said = embed(load_table_model(options.model), options.table, options.colour, options.out, options.steps)
    print(f"{said}\nwritten: {options.out}, {beside}")
