"""The command line, `cavia` and `python -m cavia`: one file for each group of commands.

Nothing heavy is imported here: `cavia --help` answers at once, and `cavia run` starts its workers before PyTorch is in.
"""

import os
import sys
from collections.abc import Sequence

from cavia.cli.arguments import Parser
from cavia.cli.experiments import add_experiment_commands
from cavia.cli.models import add_model_commands
from cavia.cli.store import add_store_command
from cavia.cli.tables import add_table_commands
from cavia.errors import CaviaError, Diverged

MISUSE, FAILED, INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        options = make_parser().parse_args(arguments)
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


def make_parser() -> Parser:
    """Every command and its arguments; `options.action(options)` runs the one that was asked for."""
    from cavia import __version__

    parser = Parser(prog="cavia", description="Fast context adaptation via meta-learning.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"cavia {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=Parser)
    for add in (add_experiment_commands, add_model_commands, add_store_command, add_table_commands):
        add(commands)
    return parser
