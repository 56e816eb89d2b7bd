"""What happens before every route: access, timing, and refusals as one line of JSON."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from cavia.serving.limits import Limits, Refused
from cavia.serving.metrics import Metrics
from cavia.serving.service import Reply, refusal
from cavia.serving.tokens import Gate

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Answer: TypeAlias = Callable[[Receive], Awaitable[Reply]]
OPEN = ("/", "/health", "/docs", "/openapi.json")  # they say nothing of the model or its tasks
METHODS = {"GET", "POST", "DELETE"}
ROUTES = {"adapt", "predict", "tasks", "model", "health", "metrics", "docs", "openapi.json", "api", "page"}


class Door:
    """An ASGI application before another one.

    short: routes that are answered here, because the way through FastAPI is long beside a share in a batch: path →
           what a POST request is answered with.
    """

    def __init__(self, app: Any, gate: Gate, metrics: Metrics, limits: Limits, short: Mapping[str, Answer]):
        self.app, self.gate, self.metrics, self.limits, self.short = app, gate, metrics, limits, short

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500
        scope["path"] = scope["raw_path"].decode("ascii", "replace")  # a %2F in an id is no slash of the path

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._check(scope)
            answer = self.short.get(scope["path"]) if scope["method"] == "POST" else None
            if answer:
                reply = await answer(receive)
                status = reply[0]
                await _send(send, reply)
            else:
                await self.app(scope, receive, noting)
        except Refused as error:
            await _send(noting, refusal(error.status, error))
        finally:
            self.metrics.seen(_route(scope), status, time.perf_counter() - begun)

    def _check(self, scope: Any) -> None:
        headers = dict(scope["headers"])
        if scope["path"] not in OPEN and (refused := self.gate.refusal(headers)):
            raise Refused(*refused)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.body:
            raise Refused(413, f"the body has {int(length)} bytes, at most {self.limits.body}; send it in parts")
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if scope["method"] == "POST" and kind != b"application/json":
            got = kind.decode("latin-1") or "none"
            raise Refused(415, f"the Content-Type must be application/json, got {got}")


async def read_body(receive: Receive, limits: Limits) -> bytes:
    """The body of a request, if it is not too long and comes in time."""
    parts, length, is_late = [], 0, False
    task = asyncio.current_task()
    assert task  # this is a coroutine

    def expire() -> None:
        nonlocal is_late
        is_late = bool(task.cancel())

    timer = asyncio.get_running_loop().call_later(limits.seconds, expire)  # asyncio.timeout costs much more
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the request ended before its body did")
            parts.append(message.get("body", b""))
            length += len(parts[-1])
            if length > limits.body:
                raise Refused(413, f"the body has more than {limits.body} bytes, the limit; send it in parts")
            if not message.get("more_body"):
                return b"".join(parts)
    except asyncio.CancelledError:
        if not is_late:
            raise
        task.uncancel()
        raise Refused(408, f"the body took longer than {limits.seconds:g} s, the limit") from None
    finally:
        timer.cancel()


async def _send(send: Send, reply: Reply) -> None:
    status, content = reply
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _route(scope: Any) -> str:
    """The route without ids, of which there may be millions."""
    first, *rest = scope["path"].removeprefix("/").split("/")
    if first not in ROUTES or scope["method"] not in METHODS:
        return "other"
    return f"{scope['method']} /{first}" + ("/{id}" * bool(rest)) + ("/nearest" * (rest[1:] == ["nearest"]))
