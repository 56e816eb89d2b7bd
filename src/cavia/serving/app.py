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
from cavia.demo.routes import router
from cavia.errors import CaviaError, shown
from cavia.serving import describing as about
from cavia.serving.batching import Batcher
from cavia.serving.door import Door, Receive, read_body
from cavia.serving.limits import Refused, checked_id
from cavia.serving.metrics import Metrics
from cavia.serving.points import PointModel
from cavia.serving.service import Reply, Request, Service, as_json, refusal
from cavia.serving.tokens import Gate
from cavia.store.contexts import ContextStore

MOST_NEAR = 1000
SAFE = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
METRICS = "text/plain; version=0.0.4"
Id = Annotated[str, Path(description=about.ID, min_length=1)]


class Desk:
    """What routes need: batches for requests that change or predict, a separate thread for those that only read.

    reader: the store, opened once more, so that no search holds up a batch.
    """

    def __init__(self, service: Service, reader: ContextStore, seconds: float):
        self.service, self.reader, self.metrics = service, reader, Metrics()
        self.batcher = Batcher(service.answer, service.limits, seconds, self.metrics.batches.observe)
        self.reading = ThreadPoolExecutor(1, "cavia-store")

    async def adapt(self, receive: Receive) -> Reply:
        return await self.batcher.submit(Request("adapt", await read_body(receive, self.service.limits)))

    async def predict(self, receive: Receive) -> Reply:
        return await self.batcher.submit(Request("predict", await read_body(receive, self.service.limits)))

    async def read(self, act: Callable[[], Any]) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self.reading, act)
        except CaviaError as error:
            raise Refused(503, error) from error

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        yield
        self.batcher.close()
        self.reading.shutdown()


def make_app(service: Service, reader: ContextStore, token: str | None, seconds: float) -> Any:
    """The ASGI application.

    token:   what every request must send; None: any may come that asks for localhost.
    seconds: how long a request waits for others; 0: requests are answered one by one.
    """
    desk = Desk(service, reader, seconds)
    app = FastAPI(title="cavia", version=__version__, docs_url=None, redoc_url=None, lifespan=desk.lifespan)
    app.add_exception_handler(Refused, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_parameter)
    app.add_exception_handler(HTTPException, _refuse_route)
    _add_model_routes(app, desk)
    _add_task_routes(app, desk)
    _add_page(app, service, token)
    short = {"/adapt": desk.adapt, "/predict": desk.predict}
    return Door(app, Gate(token), desk.metrics, service.limits, short)


def _add_model_routes(app: FastAPI, desk: Desk) -> None:
    service = desk.service

    @app.post("/adapt", **about.ADAPT)
    async def adapt(request: HttpRequest) -> Response:
        return _response(await desk.adapt(request.receive))

    @app.post("/predict", **about.PREDICT)
    async def predict(request: HttpRequest) -> Response:
        return _response(await desk.predict(request.receive))

    @app.get("/model", **about.MODEL)
    async def model() -> Response:
        return _json(service.about())

    @app.get("/health", **about.HEALTH)
    async def health() -> Response:
        return _json({"status": "ok", "compiling": service.calls.is_compiling})

    @app.get("/metrics", **about.METRICS)
    async def metrics() -> Response:
        return Response(desk.metrics.text(await desk.read(lambda: len(desk.reader))), media_type=METRICS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        page = files("cavia.serving").joinpath("docs.html").read_bytes()
        return Response(page, media_type="text/html", headers=SAFE)


def _add_task_routes(app: FastAPI, desk: Desk) -> None:
    service, reader = desk.service, desk.reader

    @app.get("/tasks/{id}", **about.GET)
    async def get(id: Id) -> Response:
        name = _id(id)
        return _json({"id": name, "context": await desk.read(lambda: service.context(name, reader))})

    @app.delete("/tasks/{id}", **about.DELETE)
    async def delete(id: Id) -> Response:
        return _response(await desk.batcher.submit(Request("delete", id=_id(id))))

    @app.get("/tasks/{id}/nearest", **about.NEAREST)
    async def nearest(id: Id, k: Annotated[int, Query(ge=1, le=MOST_NEAR)] = 5) -> Response:
        name = _id(id)
        return _json({"id": name, "nearest": await desk.read(lambda: service.nearest(name, k, reader))})


def _add_page(app: FastAPI, service: Service, token: str | None) -> None:
    """The page of `cavia demo` with this model, if it fits; it needs no token. Else a redirect to the description."""
    if token is None and isinstance(service.model, PointModel):
        try:
            app.include_router(router(learner=service.model.learner))
            return
        except CaviaError:  # no panel shows such a model
            pass

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(status_code=307, headers={"location": "docs"})


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
    """Refuse an unknown path or method."""
    what = shown(f"{request.method} {request.url.path}")
    response = _response(refusal(error.status_code, f"{error.detail}: {what}; /docs lists all routes"))
    response.headers.update(error.headers or {})
    return response


def _id(encoded: str) -> str:
    """The id in a URL, where every character may be written as %…"""
    try:
        return checked_id(unquote_to_bytes(encoded).decode())
    except UnicodeDecodeError as error:
        raise Refused(422, f"an id in a URL must be UTF-8, got {shown(encoded)}") from error
    except CaviaError as error:
        raise Refused(422, error) from error
