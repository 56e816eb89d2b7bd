"""Inspect a store of adapted contexts."""

import argparse
from typing import Any

from cavia.cli.arguments import a_path, a_store, at_least
from cavia.errors import CaviaError, shown


def add_store_command(commands: Any) -> None:
    """`cavia store`, as a subcommand of a parser."""
    store = commands.add_parser(
        "store",
        help="inspect or copy a store of adapted contexts",
        usage="cavia store STORE [--nearest ID] [--k K] [--export FILE]\n       cavia store copy FROM TO",
        allow_abbrev=False,
    )
    store.add_argument(
        "store",
        nargs="+",
        type=a_store,
        metavar="STORE",
        help="the file or postgresql:// URL of a cavia.ContextStore; or `copy` and two of them, to copy everything "
        "from the first to the second, which is created if missing",
    )
    store.add_argument("--nearest", metavar="ID", help="show the tasks whose contexts are nearest to this task's")
    store.add_argument("--k", type=at_least(1), default=10, help="number of nearest tasks (default: 10)")
    store.add_argument("--export", type=a_path, metavar="FILE", help="write everything to a Parquet file")
    store.set_defaults(action=_store)


def _store(options: argparse.Namespace) -> None:
    first, *others = options.store
    if not others:
        _look(first, options)
    elif str(first) != "copy":
        raise CaviaError(
            f"cavia store looks into one store, got {shown(str(others[0]))} beside {shown(str(first))}; "
            "to copy one: cavia store copy FROM TO"
        )
    elif len(others) != 2:
        raise CaviaError(f"cavia store copy takes two stores, FROM and TO, got {len(others)}")
    elif options.nearest is not None or options.export:
        raise CaviaError("cavia store copy takes neither --nearest nor --export; look into the copy afterwards")
    else:
        from cavia.store.copying import copy_store

        copied, target = copy_store(*others)
        print(f"{copied} contexts copied to {target}")


def _look(place: Any, options: argparse.Namespace) -> None:
    from cavia.store.contexts import ContextStore

    with ContextStore(place) as store:
        ids, contexts = next(store.batches(1), ([], None))
        kind = f" of {contexts.shape[1]} numbers ({contexts.dtype})" if contexts is not None else ""
        print(f"{len(store)} contexts{kind} of model version {store.version}")
        if options.nearest is not None:
            numbers = bool(ids) and isinstance(ids[0], int) and options.nearest.lstrip("-").isdecimal()
            for near, distance in store.nearest([int(options.nearest) if numbers else options.nearest], options.k)[0]:
                print(f"{distance:.6g}  {near}")
        if options.export:
            store.export(options.export)
            print(f"written: {options.export}")
