"""A trained model behind HTTP."""

import argparse
import logging
from importlib import import_module
from typing import Any

from cavia.cli.arguments import a_path, a_store, at_least, positive, shown_text
from cavia.cli.models import MODEL
from cavia.errors import CaviaError, missing_package


def add_serve_command(commands: Any) -> None:
    """`cavia serve`, as a subcommand of a parser."""
    serve = commands.add_parser("serve", help="answer requests over HTTP with a trained model", allow_abbrev=False)
    serve.add_argument("model", type=a_path, help=f"a file written by `cavia fit`, {MODEL}")
    serve.add_argument(
        "--store",
        type=a_store,
        help="the file or postgresql:// URL of contexts, created if missing (default: contexts are not kept)",
    )
    serve.add_argument("--host", default="127.0.0.1", help="the address; any but this machine's own needs --token-file")
    serve.add_argument("--port", type=at_least(0, 65535), default=8000, help="0: any free port (default: 8000)")
    serve.add_argument("--token-file", type=a_path, help="a file that holds the token every request must send")
    serve.add_argument(
        "--batch-ms",
        type=at_least(0, 1000),
        default=2,
        help="how long a request waits for others to join its batch; 0: no batching (default: 2)",
    )
    serve.add_argument(
        "--no-compile", action="store_true", help="do not compile graphs at startup, which takes a minute"
    )
    serve.add_argument("--most-tasks", type=at_least(1), default=1000, help="most tasks per request (default: 1000)")
    serve.add_argument(
        "--most-points", type=at_least(1), default=10_000, help="most points per request (default: 10000)"
    )
    serve.add_argument("--most-mb", type=positive, default=4.0, help="largest request in MB (default: 4)")
    serve.add_argument("--timeout", type=positive, default=30.0, help="seconds a request may wait (default: 30)")
    serve.set_defaults(action=_serve)


def _serve(options: argparse.Namespace) -> None:
    _require_extra()
    from cavia.listening import address, bound, run
    from cavia.serving.app import make_app
    from cavia.serving.limits import Limits
    from cavia.serving.opening import opened
    from cavia.serving.tokens import is_loopback, read_token

    logging.getLogger("torch._inductor").setLevel(logging.ERROR)  # its warnings are of no use to users
    token = read_token(options.token_file) if options.token_file else None
    if token is None and not is_loopback(options.host):
        raise CaviaError(f"--host {shown_text(options.host)} can be reached from other machines: give --token-file")
    limits = Limits(int(options.most_mb * 1e6), options.most_tasks, options.most_points, options.timeout)
    listening = bound(options.host, options.port)
    with listening, opened(options.model, options.store, limits, not options.no_compile) as (service, reader):
        service.calls.warm()
        about = service.about()
        kept = f"{len(reader)} contexts in {reader.path}" if options.store else "contexts end with it, without --store"
        where = address(listening)
        started = (
            f"{about['learner']} on {about['model']}, version {about['version']}; {kept}\n"
            f"serving at {where}, described at {where}/docs; Ctrl-C ends it"
        )
        app = make_app(service, reader, token, options.batch_ms / 1000)
        run(app, listening, lambda: print(started, flush=True))
        if options.store:
            print(f"ended; {len(reader)} contexts in {reader.path}", flush=True)


def _require_extra() -> None:
    try:
        for name in ("fastapi", "prometheus_client", "uvicorn"):
            import_module(name)
    except ImportError as error:
        raise missing_package("cavia serve", str(error.name).replace("_", "-"), "serve") from error
