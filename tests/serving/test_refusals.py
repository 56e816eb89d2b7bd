"""What is wrong with a request is one line that names it; nobody else's request suffers."""

import json

import pytest

import cavia
from cavia.serving.limits import Limits

GOOD = {"x": [[1, 2], [3, 4]], "y": [[1], [2]]}


@pytest.fixture
def ask(serving, learner_file):
    with serving(learner_file / "curves.cavia", limits=Limits(body=5000, tasks=3, points=6)) as ask:
        yield ask


def refused(reply, status=422):
    assert reply[0] == status, reply
    assert set(reply[1]) == {"detail"}
    assert "\n" not in reply[1]["detail"]
    return reply[1]["detail"]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"x": [[1, 2, 3]], "y": [[1]]}, "task 'ann': x must be a list of points, each a list of numbers, 2 of them"),
        ({"x": [[1, 2]], "y": [[1, 2]]}, "task 'ann': y must be a list of points, each a list of numbers, 1 of them"),
        ({"x": [[1, 2]], "y": [[1], [2]]}, "task 'ann' has 1 points x but 2 targets y"),
        ({"x": [[1, 2], [3, 1e39]], "y": [[1], [2]]}, "task 'ann', point 1: x must be finite and within ±3.4e38, got"),
        ({"x": [[1, 2], [3]], "y": [[1], [2]]}, "task 'ann': x must be a list of points"),
        ({"x": [1, 2], "y": [[1], [2]]}, "got shape [2]"),
        ({"x": [[1, None]], "y": [[1]]}, "got [[1, None]]"),
        ({"x": [["a", "b"]], "y": [[1]]}, "got [['a', 'b']]"),
        ({"x": [[True, False]], "y": [[1]]}, "got [[True, False]]"),
        ({"x": [], "y": []}, "got []"),
        ({"x": [[1, 2]]}, 'must be an object with "x" and "y", got {\'x\': [[1, 2]]}'),
        ({"x": [[1, 2]], "y": [[1]], "w": 1}, "task 'ann' has an unknown 'w'"),
        ([[1, 2]], "must be an object with"),
        ({"x": [[1, 2]], "y": [[10**400]]}, "task 'ann': y must be a list of points"),
        ({"x": [[0, 1e30]], "y": [[3e38]]}, "the context of task 'ann' is not finite"),
    ],
)
def test_a_wrong_task(ask, task, said):
    assert said in refused(ask.adapt({"bob": GOOD, "ann": task}))
    assert ask("GET", "/tasks/bob")[0] == 404


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_number_that_is_none(ask, value):
    body = f'{{"tasks": {{"ann": {{"x": [[1, 2], [3, {value}]], "y": [[1], [2]]}}}}}}'.encode()
    assert "'ann', point 1: x must be finite" in refused(ask("POST", "/adapt", body))


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "the body is not valid JSON"),
        (b"\xff", 400, "utf-8"),
        (b"[" * 4000, 400, "too many brackets"),
        (b"[]", 400, "must hold a JSON object"),
        (b'{"tasks": {"ann": {}, "ann": {}}}', 400, "'ann' appears twice"),
        (rb'{"tasks": {"\ud800": {}}}', 400, "half of a character"),
        (rb'{"tasks": {"a\u0000b": {}}}', 422, "an id must not hold the character NUL, got 'a\\x00b'"),
        (b'{"tasks": {"": {}}}', 422, "an id has 1 to 500 characters, got 0"),
        (b'{"tasks": {"%s": {}}}' % (b"x" * 501), 422, "an id has 1 to 500 characters, got 501"),
        (b"{}", 422, '"tasks" must be an object id'),
        (b'{"tasks": []}', 422, '"tasks" must be an object id'),
        (b'{"tasks": {}}', 422, "at least 1 task"),
        (b'{"rows": []}', 422, 'this model was not trained on a table: send "tasks", not "rows"'),
        (b'{"tasks": {}, "moed": 1}', 422, "unknown 'moed'; known are mode, rows, tasks"),
        (b'{"tasks": {}, "mode": "go on"}', 422, "unknown mode 'go on'"),
        (b'{"tasks": {}, "mode": []}', 422, "unknown mode []"),
    ],
)
def test_a_wrong_body(ask, body, status, said):
    assert said in refused(ask("POST", "/adapt", body), status)


def test_limits_name_the_value_and_the_limit(ask):
    assert refused(ask.adapt(dict.fromkeys("abcd", GOOD))) == "4 tasks in one request, at most 3; send them in parts"
    many = {"x": [[1, 2]] * 7, "y": [[1]] * 7}
    assert refused(ask.adapt({"ann": many})) == "7 points in one request, at most 6; send them in parts"
    long = ask("POST", "/adapt", b" " * 5001)
    assert refused(long, 413) == "the body has 5001 bytes, at most 5000; send it in parts"
    chunks = ask.client.post("/adapt", content=iter([b" " * 3000] * 2), headers={"content-type": "application/json"})
    said = refused((chunks.status_code, chunks.json()), 413)
    assert said == "the body has more than 5000 bytes, the limit; send it in parts"


def test_what_is_not_json_is_not_read(ask):
    said = ask.client.post("/adapt", content=json.dumps({"tasks": {}}), headers={"content-type": "text/plain"})
    assert refused((said.status_code, said.json()), 415) == "the Content-Type must be application/json, got text/plain"


def test_unknown_ids_are_named(ask):
    ask.adapt({"ann": GOOD})
    wanted = "'bob', 'cem' have no context to predict by; adapt first"
    tasks = {name: {"x": [[1, 2]]} for name in ("ann", "bob", "cem")}
    assert refused(ask.predict(tasks)) == wanted
    assert refused(ask.adapt({"bob": GOOD}, mode="continue")) == "'bob' has no context to continue from; adapt first"


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/tasks/ann/nearest?k=0", 422, "k: Input should be greater than or equal to 1, got '0'"),
        ("GET", "/tasks/ann/nearest?k=x", 422, "k: Input should be a valid integer"),
        ("GET", "/tasks/%FF", 422, "an id in a URL must be UTF-8, got '%FF'"),
        ("GET", "/tasks/a%00b", 422, "an id must not hold the character NUL"),
        ("GET", "/tasks/", 404, "Not Found: 'GET /tasks/'; /docs lists all routes"),
        ("GET", "/tasks/a/b", 404, "Not Found"),
        ("PUT", "/tasks/a", 405, "Method Not Allowed"),
        ("GET", "/adapt", 405, "Method Not Allowed: 'GET /adapt'"),
    ],
)
def test_a_wrong_address(ask, method, path, status, said):
    assert said in refused(ask(method, path), status)


def test_a_model_that_does_not_fit_is_refused(serving, learner_file, tmp_path):
    with (
        pytest.raises(cavia.CaviaError, match=r"cannot serve MAML: a store holds contexts alone"),
        serving(learner_file / "maml.cavia"),
    ):
        pass
    other = cavia.CAVIA(cavia.MLP(2, 1, context=3), "mse")
    cavia.ContextStore(tmp_path / "contexts", other).close()
    mine = cavia.load(learner_file / "curves.cavia").version
    with (
        pytest.raises(cavia.CaviaError, match=f"version {other.version}, not of {mine}"),
        serving(learner_file / "curves.cavia"),
    ):
        pass


def test_a_store_that_fails_is_said_so(ask, monkeypatch):
    def put(self, ids, contexts):
        raise cavia.CaviaError("the disk is full")

    monkeypatch.setattr(cavia.ContextStore, "put", put)
    assert refused(ask.adapt({"ann": GOOD}), 503) == "the disk is full"


def test_a_fault_of_ours_is_one_line_and_the_service_lives(ask, monkeypatch):
    monkeypatch.setattr(ask.service.calls, "adapt", lambda tasks, starts: 1 / 0)
    assert refused(ask.adapt({"ann": GOOD}), 500) == "ZeroDivisionError: division by zero"
    monkeypatch.undo()
    assert ask.adapt({"ann": GOOD})[0] == 200
