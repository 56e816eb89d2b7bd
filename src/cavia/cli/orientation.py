"""What `cavia` prints without a command, and `cavia doctor`."""

import argparse
from typing import Any

ORIENTATION = """\
cavia: one network for many tasks, a few numbers for each (fast context adaptation, CAVIA)

  See it     cavia models                       trained models that come with the package
             cavia evaluate sine                score one of them on new tasks
             cavia demo                         try them in your browser
  Your data  cavia fit visits.csv --task user --target minutes
                                                a model for all users, adapted to each from a few rows
             cavia serve model.cavia            the same over HTTP
  The paper  cavia list                         its tables and figures
             cavia run table1                   one of them, in minutes
             cavia reproduce --dry-run          all of them, with the full budget
  Trouble    cavia doctor                       what is installed, and how to fix problems

`cavia --help` lists every command, `cavia COMMAND --help` explains one.
"""


def add_doctor_command(commands: Any) -> None:
    """`cavia doctor`, as a subcommand of a parser."""
    doctor = commands.add_parser("doctor", help="show what is installed and how to fix problems", allow_abbrev=False)
    doctor.set_defaults(action=_doctor)


def orient(options: argparse.Namespace) -> None:
    """What to type first."""
    print(ORIENTATION, end="")


def _doctor(options: argparse.Namespace) -> None:
    from cavia.tools.doctor import REPORTING, as_text, examine

    print(as_text(examine()), REPORTING, sep="\n\n", end="")
