"""The demo, a page served on this machine."""

import argparse
from typing import Any

from cavia.cli.arguments import a_path, at_least
from cavia.errors import missing_package


def add_demo_command(commands: Any) -> None:
    """`cavia demo`, as a subcommand of a parser."""
    demo = commands.add_parser(
        "demo", help="try the published models in your browser: curves, tasks, faces and navigation", allow_abbrev=False
    )
    demo.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1, this machine)")
    demo.add_argument("--port", type=at_least(0, 65535), default=8001, help="0: any free port (default: 8001)")
    demo.add_argument("--no-browser", action="store_true", help="do not open the page in a browser")
    demo.add_argument(
        "--data-root", type=a_path, help="the folder of data sets; shows CelebA's faces if it holds celeba/"
    )
    demo.set_defaults(action=_demo)


def _demo(options: argparse.Namespace) -> None:
    try:
        from cavia.demo.serving import serve_demo
    except ImportError as error:
        raise missing_package("cavia demo", error.name or str(error), "serve") from None
    serve_demo(options.host, options.port, not options.no_browser, options.data_root)
