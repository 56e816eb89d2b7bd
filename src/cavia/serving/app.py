"""The routes of a service, as a FastAPI application."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI, Path, Query, Request as HttpRequest, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from cavia import __version__
from cavia.errors import CaviaError, shown
from cavia.serving import describing as about
from cavia.serving.batching import Batcher
from cavia.serving.door import Door, read_body
from cavia.serving.limits import Refused, checked_id
from cavia.serving.metrics import Metrics
from cavia.serving.service import Reply, Request, Service, as_json, refusal
from cavia.serving.tokens import Gate
from cavia.store.contexts import ContextStore

MOST_NEAR = 1000
Id = Annotated[str, Path(description=about.ID, min_length=1)]


def make_app(service: Service, reader: ContextStore, token: str | None, seconds: float) -> Any:
    """The ASGI application.

    reader:  the same store, opened once more: what only reads does not wait for batches.
    token:   what every request must send; None: any may come that asks for localhost.
    seconds: how long a request waits for others; 0: requests are answered one by one.
    """
    metrics, limits = Metrics(), service.limits
    batcher = Batcher(service.answer, limits, seconds, metrics.batches.observe)
    reading = ThreadPoolExecutor(1, "cavia-store")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()
        reading.shutdown()

    app = FastAPI(title="cavia", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_exception_handler(Refused, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_parameter)
    app.add_exception_handler(HTTPException, _refuse_route)

    async def read(act: Callable[[], Any]) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(reading, act)
        except CaviaError as error:
            raise Refused(503, error) from error

    @app.post("/adapt", **about.ADAPT)
    async def adapt(request: HttpRequest) -> Response:
        return _response(await batcher.submit(Request("adapt", await read_body(request.receive, limits))))

    @app.post("/predict", **about.PREDICT)
    async def predict(request: HttpRequest) -> Response:
        return _response(await batcher.submit(Request("predict", await read_body(request.receive, limits))))

    @app.get("/tasks/{id}", **about.GET)
    async def get(id: Id) -> Response:
        name = _id(id)
        return _json({"id": name, "context": await read(lambda: service.context(name, reader))})

    @app.delete("/tasks/{id}", **about.DELETE)
    async def delete(id: Id) -> Response:
        return _response(await batcher.submit(Request("delete", id=_id(id))))

    @app.get("/tasks/{id}/nearest", **about.NEAREST)
    async def nearest(id: Id, k: Annotated[int, Query(ge=1, le=MOST_NEAR)] = 5) -> Response:
        name = _id(id)
        return _json({"id": name, "nearest": await read(lambda: service.nearest(name, k, reader))})

    @app.get("/model", **about.MODEL)
    async def model() -> Response:
        return _json(service.about())

    @app.get("/health", **about.HEALTH)
    async def health() -> Response:
        return _json({"status": "ok", "compiling": service.calls.is_compiling})

    @app.get("/metrics", **about.METRICS)
    async def measured() -> Response:
        return Response(metrics.text(await read(lambda: len(reader))), media_type="text/plain; version=0.0.4")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(files("cavia.serving").joinpath("docs.html").read_bytes(), media_type="text/html")

    return Door(app, Gate(token), metrics, limits)


def _response(reply: Reply) -> Response:
    status, content = reply
    return Response(content, status, media_type="application/json" if content else None)


def _json(value: Any) -> Response:
    return _response((200, as_json(value)))


async def _refuse(_: HttpRequest, error: Any) -> Response:
    return _response(refusal(error.status, error))


async def _refuse_parameter(_: HttpRequest, error: Any) -> Response:
    first = error.errors()[0]
    return _response(refusal(422, f"{first['loc'][-1]}: {first['msg']}, got {shown(first.get('input'))}"))


async def _refuse_route(request: HttpRequest, error: Any) -> Response:
    """No such path, or no such method of it."""
    what = shown(f"{request.method} {request.url.path}")
    found = _response(refusal(error.status_code, f"{error.detail}: {what}; /docs lists what there is"))
    found.headers.update(error.headers or {})
    return found


def _id(encoded: str) -> str:
    """The id in a URL, where every sign may be written as %…"""
    try:
        return checked_id(unquote_to_bytes(encoded).decode())
    except UnicodeDecodeError as error:
        raise Refused(422, f"an id in a URL must be UTF-8, got {shown(encoded)}") from error
    except CaviaError as error:
        raise Refused(422, error) from error
