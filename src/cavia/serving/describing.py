"""The OpenAPI description of the routes, as JSON Schema. It is the same for every model and reveals nothing of it."""

from typing import Any

ID = "Any text of 1 to 500 characters; in a URL, / is written as %2F."
NUMBERS = {"type": "array", "items": {"type": "number"}}
POINTS = {"type": "array", "items": NUMBERS, "minItems": 1}
LABELS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
LEVEL = {
    "type": ["number", "null"],
    "exclusiveMinimum": 0,
    "exclusiveMaximum": 1,
    "description": "of intervals around predictions of numbers, for models by `cavia fit`",
}
ROW = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}
CONTEXT = {"type": "object", "properties": {"context": NUMBERS}, "required": ["context"]}
REASONS = {
    400: "The body is no JSON",
    401: "The token is missing or wrong",
    403: "Without a token, only localhost is answered",
    404: "There is no such task",
    408: "The body did not come in time",
    413: "The body is too long",
    415: "The Content-Type is not application/json",
    422: "Something in the request is wrong; `detail` names it",
    429: "Too many requests are waiting",
    503: "The store does not answer",
}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), "default": values[0]}


def _by_name(value: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": value}


def _of_json(schema: Any, **more: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema, **more}}}


def answers(schema: Any, *refusals: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer, for FastAPI: the schema, and one line of why not."""
    why = _object(["detail"], detail={"type": "string"})
    described: dict[int | str, dict[str, Any]] = {200: {"description": "Answered", **_of_json(schema)}}
    return described | {status: {"description": REASONS[status], **_of_json(why)} for status in (401, 403, *refusals)}


def takes(targets: bool, **options: Any) -> dict[str, Any]:
    """The body of a request, for FastAPI: tasks or rows, with targets or without, and options by name."""
    points: dict[str, Any] = {"x": POINTS} | ({"y": {"anyOf": [POINTS, LABELS]}} if targets else {})
    tasks = {**_by_name(_object(list(points), **points)), "minProperties": 1, "description": "id → points"}
    rows = {"type": "array", "items": ROW, "minItems": 1, "description": "one object column → value for each row"}
    kinds = [{**_object([name], **{name: value}, **options), "additionalProperties": False}
             for name, value in (("tasks", tasks), ("rows", rows))]  # fmt: skip
    example: dict[str, Any] = {"x": [[1.0], [2.0]]} | ({"y": [[0.8], [0.9]]} if targets else {})
    return {"requestBody": {"required": True, **_of_json({"anyOf": kinds}, example={"tasks": {"ann": example}})}}


BAD_BODY = (400, 408, 413, 415, 422, 429, 503)
ADAPT: dict[str, Any] = {
    "summary": "Find the contexts of tasks from their points, and store them",
    "openapi_extra": takes(True, mode=_one_of("replace", "continue")),
    "responses": answers(_object(["tasks"], tasks=_by_name(CONTEXT)), *BAD_BODY),
}
PREDICTED = {
    "tasks": _by_name(_object(["prediction"], prediction={"type": "array"}, probabilities=POINTS)),
    "rows": {
        "type": "array",
        "items": _object(
            ["prediction"], prediction=_by_name({}), probabilities=_by_name({}), interval=_by_name(NUMBERS)
        ),
    },
}
PREDICT: dict[str, Any] = {
    "summary": "Predict points of tasks by their stored contexts",
    "openapi_extra": takes(False, unknown=_one_of("refuse", "start"), interval=LEVEL),
    "responses": answers(_object([], **PREDICTED), *BAD_BODY),
}
GET: dict[str, Any] = {
    "summary": "The context of a task",
    "responses": answers(_object(["id", "context"], id={"type": "string"}, context=NUMBERS), 404, 422, 503),
}
DELETE: dict[str, Any] = {
    "summary": "Forget a task",
    "status_code": 204,
    "responses": {204: {"description": "Forgotten"}, **answers({}, 404, 422, 429, 503)},
}
DELETE["responses"].pop(200)
NEAR = _object(["id", "distance"], id={"type": "string"}, distance={"type": "number"})
NEAREST: dict[str, Any] = {
    "summary": "The tasks with the nearest contexts",
    "responses": answers(
        _object(["id", "nearest"], id={"type": "string"}, nearest={"type": "array", "items": NEAR}), 404, 422, 503
    ),
}
MODEL: dict[str, Any] = {
    "summary": "What the model takes and gives, and its version",
    "responses": answers(_by_name({})),
}
HEALTH: dict[str, Any] = {"summary": "Whether the service is there; needs no token", "responses": answers(_by_name({}))}
METRICS: dict[str, Any] = {
    "summary": "Counts and times, for Prometheus",
    "responses": {200: {"description": "Prometheus' text", "content": {"text/plain": {"schema": {"type": "string"}}}}},
}
METRICS["responses"] |= {status: answer for status, answer in answers({}, 503).items() if status != 200}
