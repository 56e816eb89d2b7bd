"""The server's answers to misuse are one line, and its page loads nothing from elsewhere."""

import re
from importlib.resources import files

import pytest

PAGE = files("cavia.demo").joinpath("page")
TOO_MANY = [{"x": 0, "y": 0}] * 101


def refused(answer, status):
    assert answer.status_code == status
    detail = answer.json()["detail"]
    assert "\n" not in detail
    assert len(detail) < 300
    return detail


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"points": TOO_MANY}, "points: List should have at most 100 items"),
        ({"points": [{"x": 7, "y": 0}]}, r"points\.0\.x: Input should be less than or equal to 5, got 7"),
        ({"points": [{"x": "1", "y": 0}]}, r"points\.0\.x: Input should be a valid number, got '1'"),
        ({"points": [{"x": 1}]}, r"points\.0\.y: Field required"),
        ({"points": [[1, 2]]}, r"points\.0: "),
        ({"points": [], "steps": 11}, "steps: Input should be less than or equal to 10, got 11"),
        ({"points": [], "steps": -1}, "steps: "),
        ({"points": [], "steps": 1.5}, "steps: "),
        ({"points": [], "stepps": 1}, "stepps: Extra inputs are not permitted"),
        ([], "valid dictionary"),
    ],
)
def test_a_wrong_request_is_one_line(client, body, words):
    assert re.search(words, refused(client.post("/api/curves", json=body), 422))


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b'{"points": [{"x": NaN, "y": 1e999}]}', b"\xff", b"[" * 5000])
def test_a_body_that_is_no_json_is_one_line(client, text):
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/curves", content=text, headers=headers)
    assert refused(answer, 400 if text.startswith((b"\xff", b"[")) else 422)


def test_a_body_that_is_too_long_is_not_read(client):
    assert "at most 65536 bytes" in refused(client.post("/api/curves", content=b" " * 70_000), 413)
    assert "Content-Length" in refused(client.post("/api/curves", content=iter([b"{}"])), 411)


def test_files_are_those_of_the_page_only(client):
    assert client.get("/").text.startswith("<!doctype html>")
    for path in PAGE.iterdir():
        answer = client.get(f"/page/{path.name}")
        assert answer.status_code == 200
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert refused(client.get("/page/nothing.js"), 404)
    for path in ("/page/..%2Froutes.py", "/page/../routes.py", "/page/", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 404
    assert client.get("/api/curves").status_code == 405


def test_the_page_names_no_other_host():
    for path in PAGE.iterdir():
        hosts = re.findall(r"(?:https?:)?//[\w.]+\.\w+", path.read_text())
        assert set(hosts) <= {"http://www.w3.org"}, path.name  # the name of SVG


def test_seeds_are_whole_numbers(client):
    for seed in ("-1", "x", str(2**31), "1.5", ""):
        assert "seed" in refused(client.get(f"/api/curves/task?seed={seed}"), 422)
