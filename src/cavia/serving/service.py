"""Answers a batch of requests: contexts are adapted and stored together, predictions are made together."""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cavia.errors import CaviaError, require_one_of, shown
from cavia.json_text import parse_object
from cavia.serving.computing import Calls
from cavia.serving.limits import Limits, Refused, checked_id
from cavia.serving.points import Served, Task
from cavia.store.contexts import ContextStore
from cavia.store.ids import Id, first_few

Reply: TypeAlias = tuple[int, bytes]  # status and JSON
MODES, UNKNOWN = ("replace", "continue"), ("refuse", "start")
KNOWN = {"adapt": {"tasks", "rows", "mode"}, "predict": {"tasks", "rows", "unknown", "interval"}}  # names in a body

LOG = logging.getLogger("cavia.serving")


class StoreFailed(Refused):
    """Nothing of a batch could be stored."""


@dataclass
class Request:
    """One request on its way through a batch."""

    what: str  # "adapt", "predict" or "delete"
    body: bytes = b""
    id: str = ""  # of the task to delete
    tasks: list[Task] = field(default_factory=list)
    choice: str = ""  # the mode of "adapt", or what "predict" does with unknown tasks
    asked: Any = None
    reply: Reply | None = None

    def refuse(self, status: int, error: object) -> None:
        self.reply = refusal(status, error)


def refusal(status: int, error: object) -> Reply:
    return status, as_json({"detail": str(error)})


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Service:
    """A model and its store, used by one thread at a time."""

    def __init__(self, model: Served, calls: Calls, store: ContextStore, limits: Limits):
        self.model, self.calls, self.store, self.limits = model, calls, store, limits
        first = next(store.batches(1), ([], None))[0]
        self.numbered = bool(first) and isinstance(first[0], int)

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """A reply to each. A context is acknowledged only once it is stored; a bad request affects only itself."""
        for request in requests:
            self._alone([request], self._read)
        waiting = [request for request in requests if request.reply is None]
        for delete in (request for request in waiting if request.what == "delete"):
            self._alone([delete], self._delete)
        adapts = [request for request in waiting if request.what == "adapt"]
        while adapts:  # usually once: an id that several want to move is moved by one after the other
            now, adapts = _without_doubles(adapts)
            self._together(now, self._adapt)
        self._together([request for request in waiting if request.what == "predict"], self._predict)
        return [request.reply or refusal(500, "the request was lost") for request in requests]

    def about(self) -> dict[str, Any]:
        """What GET /model says."""
        learner = self.model.learner
        names = {
            "learner": type(learner).__name__,
            "model": type(learner.model).__name__,
            "version": self.store.version,
        }
        return {**names, "context": len(self.calls.start), **self.model.about()}

    def context(self, id: str, store: ContextStore) -> list[float]:
        """Of one task."""
        if self._id(id) not in store:
            raise Refused(404, f"there is no task {shown(id)}")
        return store.get([self._id(id)]).context[0].tolist()

    def nearest(self, id: str, k: int, store: ContextStore) -> list[dict[str, Any]]:
        """The k tasks that are most like it."""
        self.context(id, store)
        return [{"id": str(one), "distance": distance} for one, distance in store.nearest([self._id(id)], k)[0]]

    def _read(self, requests: Sequence[Request]) -> None:
        """Convert JSON to tasks."""
        for request in (one for one in requests if one.what != "delete"):
            try:
                body = parse_object(request.body.decode(), "the body", constants=True, finite=False)
            except (CaviaError, UnicodeDecodeError) as error:
                raise Refused(400, error) from error
            if unknown := body.keys() - KNOWN[request.what]:
                known = ", ".join(sorted(KNOWN[request.what]))
                raise CaviaError(f"the body has an unknown {shown(min(unknown))}; known are {known}")
            name, choices = ("mode", MODES) if request.what == "adapt" else ("unknown", UNKNOWN)
            request.choice = body.get(name, choices[0])
            require_one_of(name, request.choice, choices)
            read = self.model.support if request.what == "adapt" else self.model.queries
            request.tasks, request.asked = read(body, self.limits)

    def _together(self, requests: Sequence[Request], act: Callable[[Sequence[Request]], None]) -> None:
        """All at once; if that fails, one by one, so that only the faulty ones are refused."""
        try:
            if requests:
                act(requests)
        except StoreFailed as error:
            for request in requests:
                request.refuse(error.status, error)
        except Exception:
            for request in requests:
                self._alone([request], act)

    def _alone(self, requests: Sequence[Request], act: Callable[[Sequence[Request]], None]) -> None:
        try:
            act(requests)
        except Refused as error:
            requests[0].refuse(error.status, error)
        except CaviaError as error:
            requests[0].refuse(422, error)
        except Exception as error:
            LOG.exception("a request failed")
            requests[0].refuse(500, f"{type(error).__name__}: {error}")

    def _adapt(self, requests: Sequence[Request]) -> None:
        tasks = [task for request in requests for task in request.tasks]
        starts = self.calls.start.repeat(len(tasks), 1)
        going_on = [i for i, (request, _) in enumerate(_with_tasks(requests)) if request.choice == "continue"]
        if going_on:
            if not self.calls.goes_on:
                name = type(self.model.learner).__name__
                raise CaviaError(f'{name} reads all points of a task at once: send them all, with "mode": "replace"')
            starts[going_on] = self._stored([tasks[i].id for i in going_on], "to continue from").to(starts.dtype)
        contexts = self.calls.adapt(tasks, starts)
        fine = contexts.isfinite().all(1).tolist()
        for (request, task), is_fine in zip(_with_tasks(requests), fine, strict=True):
            if not is_fine and request.reply is None:
                what = f"the context of task {shown(task.id)} is not finite: its points are too far from training"
                request.refuse(422, what)
        stored = [i for i, (request, _) in enumerate(_with_tasks(requests)) if request.reply is None]
        self._put([self._id(tasks[i].id) for i in stored], contexts[stored])
        listed, place = contexts.tolist(), 0
        for request in requests:
            own = listed[place : place + len(request.tasks)]
            place += len(request.tasks)
            if request.reply is None:
                by_task = {task.id: {"context": one} for task, one in zip(request.tasks, own, strict=True)}
                request.reply = 200, as_json({"tasks": by_task, **request.asked})

    def _predict(self, requests: Sequence[Request]) -> None:
        tasks = [task for request in requests for task in request.tasks]
        lenient = [request.choice == "start" for request, _ in _with_tasks(requests)]
        strangers = {task.id for task, is_so in zip(tasks, lenient, strict=True) if is_so and not self._knows(task.id)}
        contexts = self.calls.start.repeat(len(tasks), 1)
        known = [i for i, task in enumerate(tasks) if not (lenient[i] and task.id in strangers)]
        if known:
            contexts[known] = self._stored([tasks[i].id for i in known], "to predict by").to(contexts.dtype)
        outputs = self.calls.predict(tasks, contexts)
        place = 0
        for request in requests:
            part = slice(place, place + len(request.tasks))
            own, place = outputs[part], part.stop
            wrong = [task.id for task, one in zip(request.tasks, own, strict=True) if not one.isfinite().all()]
            if wrong:
                what = f"a prediction of task {shown(wrong[0])} is not finite: its points are too far from training"
                request.refuse(422, what)
            else:
                request.reply = 200, as_json(self.model.answer(request.asked, request.tasks, own, contexts[part]))

    def _delete(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if not self._knows(request.id):
                raise Refused(404, f"there is no task {shown(request.id)}")
            self._of_store(partial(self.store.delete, [self._id(request.id)]))
            request.reply = 204, b""

    def _put(self, ids: list[Id], contexts: Tensor) -> None:
        try:
            self.store.put(ids, contexts)
        except CaviaError as error:
            raise StoreFailed(503, error) from error

    def _stored(self, ids: Sequence[str], what_for: str) -> Tensor:
        """Contexts [T, C]; the ids that have none are an error that names them."""
        places = {name: place for place, name in enumerate(dict.fromkeys(ids))}
        try:
            contexts = self.store.get([self._id(name) for name in places]).context
        except CaviaError as error:
            missing = [name for name in places if not self._knows(name)]
            if missing:
                have = "has no context" if len(missing) == 1 else "have no context"
                raise CaviaError(f"{first_few(missing)} {have} {what_for}; adapt first") from error
            raise Refused(503, error) from error
        return contexts[torch.tensor([places[name] for name in ids])]

    def _knows(self, id: str) -> bool:
        return self._of_store(lambda: self._id(id) in self.store)

    def _of_store(self, act: Callable[[], Any]) -> Any:
        """A store that fails is not the request's fault."""
        try:
            return act()
        except CaviaError as error:
            raise Refused(503, error) from error

    def _id(self, id: str) -> Id:
        """The id in the store's type: a store filled with numbers has numbers as ids."""
        checked_id(id)
        if not self.numbered:
            return id
        if not (id.isascii() and id.removeprefix("-").isdigit() and len(id) < 20 and str(int(id)) == id):
            raise Refused(422, f"the ids of this store are whole numbers, got {shown(id)}")
        return int(id)


def _with_tasks(requests: Iterable[Request]) -> Iterable[tuple[Request, Task]]:
    return ((request, task) for request in requests for task in request.tasks)


def _without_doubles(requests: Sequence[Request]) -> tuple[list[Request], list[Request]]:
    """The requests whose ids are not those of an earlier one, and the others."""
    seen: set[str] = set()
    first: list[Request] = []
    others: list[Request] = []
    for request in requests:
        ids = {task.id for task in request.tasks}
        (others if ids & seen else first).append(request)
        seen |= ids
    return first, others
