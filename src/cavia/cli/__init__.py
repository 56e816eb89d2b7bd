"""The command line, `cavia` and `python -m cavia`: one file per group of commands.

This module imports nothing heavy: `cavia --help` answers at once, and `cavia run` starts its workers before it imports
PyTorch.
"""

import io
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from cavia.cli.arguments import Parser
from cavia.cli.demo import add_demo_command
from cavia.cli.experiments import add_experiment_commands
from cavia.cli.models import add_model_commands
from cavia.cli.orientation import add_doctor_command, orient
from cavia.cli.serving import add_serve_command
from cavia.cli.store import add_store_command
from cavia.cli.tables import add_table_commands
from cavia.cli.terminal import make_readable, say, silence
from cavia.errors import CaviaError, Diverged, shown

MISUSE, FAILED, INTERRUPTED = 2, 1, 130
WRITTEN = ("out", "export", "publish")  # arguments that are paths to write to


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    make_readable()
    try:
        _act(arguments)
        return 0
    except CaviaError as error:
        say(error)
        return MISUSE
    except Diverged as error:
        say(error)
        return FAILED
    except BrokenPipeError:  # nobody reads our output, as with `cavia list | head -1`
        silence(sys.stdout)
        return 0
    except OSError as error:  # no space left, a name that is too long, …
        silence(sys.stdout)
        say(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return MISUSE
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not re.search("(allocate|out of) memory", str(error)):
            raise
        say(f"out of memory; ask for less ({(str(error).splitlines() or ['no more to be had'])[0]})")
        return MISUSE
    except KeyboardInterrupt as error:
        say(str(error) or "interrupted")
        return INTERRUPTED


def _act(arguments: Sequence[str] | None) -> None:
    """Run the command, and make sure that its output is written."""
    printed = io.StringIO()  # argparse would not report a full device
    try:
        with redirect_stdout(printed):
            options = make_parser().parse_args(arguments)
    except SystemExit:  # --help, --version
        print(printed.getvalue(), end="", flush=True)
        raise
    for name, value in vars(options).items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path):
                _check_path(name, path)
    options.action(options)
    if sys.stdout:
        sys.stdout.flush()


def _check_path(name: str, path: Path) -> None:
    """Raise if a path cannot exist: a loop of links, a name that is too long, NUL."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return  # the command that needs it reports this
    except (OSError, ValueError) as error:
        what = f"write --{name}" if name in WRITTEN else f"read {name}"
        raise CaviaError(f"cannot {what} {shown(str(path))}: {getattr(error, 'strerror', error)}") from error


def make_parser() -> Parser:
    """Every command and its arguments; `options.action(options)` runs the chosen one."""
    from cavia import __version__

    parser = Parser(prog="cavia", description="Fast context adaptation via meta-learning.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"cavia {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", parser_class=Parser)
    parser.set_defaults(action=orient)
    for add in (
        add_experiment_commands,
        add_model_commands,
        add_table_commands,
        add_store_command,
        add_serve_command,
        add_demo_command,
        add_doctor_command,
    ):
        add(commands)
    return parser
