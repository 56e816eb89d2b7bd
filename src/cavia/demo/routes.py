"""The server's routes: the page, its files, and one request for each thing that a panel shows."""

from collections.abc import Callable, Coroutine
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from cavia.demo import curves, faces, navigation, plane
from cavia.demo.panels import Panels
from cavia.envs.navigation import FARTHEST
from cavia.errors import CaviaError, Diverged, shown
from cavia.learners.base import Learner

MOST_BYTES = 2**16  # of a request
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
SAFE = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
two = Field(min_length=2, max_length=2)
Anything = TypeVar("Anything")


class Asked(BaseModel):
    """A request: no unknown fields, and numbers must be numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Point(Asked):
    x: Annotated[float, Field(ge=curves.X[0], le=curves.X[1])]
    y: Annotated[float, Field(ge=curves.Y[0], le=curves.Y[1])]


class CurveAsked(Asked):
    points: Annotated[list[Point], Field(max_length=curves.MOST_POINTS)]
    steps: Annotated[int, Field(ge=0, le=curves.MOST_STEPS)] = curves.MOST_STEPS


class PlaceAsked(Asked):
    context: Annotated[list[Annotated[float, Field(ge=-plane.FARTHEST, le=plane.FARTHEST)]], two]


class FaceAsked(Asked):
    picture: Annotated[str, Field(max_length=8 * faces.PIXELS)]
    known: Annotated[list[Annotated[int, Field(ge=0, lt=faces.PIXELS)]], Field(max_length=faces.PIXELS)]


class WalkAsked(Asked):
    goal: Annotated[list[Annotated[float, Field(ge=-FARTHEST, le=FARTHEST)]], two]
    updates: Annotated[int, Field(ge=0, le=navigation.MOST_UPDATES)] = navigation.MOST_UPDATES
    seed: Seed = 0


class OneLine(APIRoute):
    """A route whose errors are one line: {"detail": "points.0.x: …"}."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            if request.method == "POST" and (refusal := _length_refused(request.headers.get("content-length"))):
                return refusal
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _refuse(422, _first(error))
            except (CaviaError, Diverged) as error:
                return _refuse(422, str(error))

        return answer


def router(data_root: Path | None = None, learner: Learner | None = None) -> APIRouter:
    """The page at "/" and its requests, to be included in an application, with an optional prefix.

    data_root: where data sets are; with CelebA there, its test faces can be completed.
    learner:   a model to show instead of the published ones; a CaviaError if no panel fits it.
    """
    panels, routes = Panels(data_root, learner), APIRouter(route_class=OneLine, include_in_schema=False)
    pages = {path.name: path for path in files("cavia.demo").joinpath("page").iterdir()}

    @routes.get("/")
    def page() -> Response:
        return _file(pages["index.html"])

    @routes.get("/page/{name}")
    def part(name: str) -> Response:
        return _file(pages[name]) if name in pages else _refuse(404, f"there is no file {shown(name)}")

    @routes.get("/api/about")
    def about() -> Response:
        return JSONResponse(panels.describe())

    _add_curves(routes, panels)
    _add_faces(routes, panels)
    _add_navigation(routes, panels)
    return routes


def _add_curves(routes: APIRouter, panels: Panels) -> None:
    """Curves and the plane of tasks."""

    @routes.post("/api/curves")
    def adapt_curve(asked: CurveAsked) -> Response:
        points = [(point.x, point.y) for point in asked.points]
        return JSONResponse(_there(panels.curves).adapt(points, asked.steps))

    @routes.get("/api/curves/task")
    def draw_curve(seed: Seed) -> Response:
        return JSONResponse(_there(panels.curves).task(seed))

    @routes.post("/api/plane")
    def look_at_plane(asked: PlaceAsked) -> Response:
        return JSONResponse(_there(panels.plane).at(asked.context))


def _add_faces(routes: APIRouter, panels: Panels) -> None:
    @routes.post("/api/faces")
    def complete_face(asked: FaceAsked) -> Response:
        return JSONResponse(_there(panels.faces).complete(asked.picture, asked.known))

    @routes.get("/api/faces/picture")
    def choose_face(source: str, number: Seed) -> Response:
        return JSONResponse(_there(panels.faces).picture(source, number))


def _add_navigation(routes: APIRouter, panels: Panels) -> None:
    @routes.post("/api/navigation")
    def walk(asked: WalkAsked) -> Response:
        return JSONResponse(_there(panels.navigation).walk(asked.goal, asked.updates, asked.seed))


def _there(panel: Anything | None) -> Anything:
    if panel is None:
        raise CaviaError("there is no model for this panel; /api/about lists the panels that have one")
    return panel


def application(data_root: Path | None = None) -> FastAPI:
    """The page as a standalone application."""
    app = FastAPI(title="cavia demo", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(router(data_root))
    return app


def _file(path: Any) -> Response:
    kind = KINDS.get(Path(path.name).suffix, "application/octet-stream")
    return Response(path.read_bytes(), media_type=kind, headers=SAFE)


def _refuse(status: int, why: str) -> Response:
    return JSONResponse({"detail": why}, status)


def _length_refused(length: str | None) -> Response | None:
    """Why a body of this length is refused; None if it is not."""
    if length is None or not length.isdecimal():
        return _refuse(411, "a request needs a Content-Length")
    if int(length) > MOST_BYTES:
        return _refuse(413, f"a request may have at most {MOST_BYTES} bytes, got {shown(int(length))}")
    return None


def _first(error: RequestValidationError) -> str:
    """The first thing that is wrong: where, what, and the value."""
    wrong = error.errors()[0]
    where = ".".join(str(part) for part in wrong["loc"][1:])
    got = "" if wrong["type"] in ("missing", "json_invalid") else f", got {shown(wrong.get('input'))}"
    return f"{where}: {wrong['msg']}{got}" if where else f"{wrong['msg']}{got}"
