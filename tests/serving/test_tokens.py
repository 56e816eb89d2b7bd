"""Who may ask."""

import os

import pytest

import cavia
from cavia.serving.tokens import is_loopback, read_token

TOKEN = "0123456789abcdef0123"


@pytest.fixture
def ask(serving, learner_file):
    with serving(learner_file / "curves.cavia", token=TOKEN) as ask:
        yield ask


@pytest.mark.parametrize("path", ["/model", "/metrics", "/tasks/ann", "/tasks/ann/nearest", "/no/such/path"])
@pytest.mark.parametrize("header", [{}, {"authorization": TOKEN}, {"authorization": f"Bearer {TOKEN[:-1]}"}])
def test_without_the_token_nothing_is_told(ask, path, header):
    response = ask.client.get(path, headers=header)
    assert response.status_code == 401
    assert response.json() == {"detail": "the token is missing or wrong; send it as Authorization: Bearer …"}
    assert response.headers["www-authenticate"] == "Bearer"


def test_with_the_token(ask):
    mine = {"authorization": f"Bearer {TOKEN}"}
    assert ask("GET", "/model", **mine)[0] == 200
    assert ask("POST", "/adapt", {"tasks": {"ann": {"x": [[1, 2]], "y": [[1]]}}}, **mine)[0] == 200
    assert ask("POST", "/adapt", {"tasks": {}})[0] == 401
    assert ask("GET", "/model", host="example.org", **mine)[0] == 200


def test_what_tells_nothing_is_open(ask):
    for path in ("/health", "/docs", "/openapi.json"):
        assert ask("GET", path)[0] == 200
    assert TOKEN not in str(ask("GET", "/openapi.json"))


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("evil.example", 403), ("127.0.0.1.evil", 403)],
)
def test_without_a_token_only_this_machine_is_answered(serving, learner_file, host, status):
    """A page in a browser may have a name of its own that leads here."""
    with serving(learner_file / "curves.cavia") as ask:
        assert ask("GET", "/model", host=host)[0] == status


def test_addresses_of_this_machine():
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "127.8.8.8")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


def written(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_is_read_from_a_file_of_ones_own(tmp_path):
    assert read_token(written(tmp_path / "token", f"{TOKEN}\n")) == TOKEN
    for mode in (0o640, 0o604):
        with pytest.raises(cavia.CaviaError, match=r"can be read by others; chmod 600 .*token$"):
            read_token(written(tmp_path / "token", TOKEN, mode))


@pytest.mark.parametrize(
    "text", ["", "\n", "short", "two words of a token", "ünïcödé-ünïcödé-ünïcödé", "0123456789\n01234567"]
)
def test_a_token_is_one_long_word(tmp_path, text):
    with pytest.raises(cavia.CaviaError, match="must hold one word of at least 16 letters and digits"):
        read_token(written(tmp_path / "token", text))


def test_a_token_file_that_is_not_there(tmp_path):
    with pytest.raises(cavia.CaviaError, match=r"cannot read --token-file .*No such file or directory; make one: "):
        read_token(tmp_path / "token")
    with pytest.raises(cavia.CaviaError, match="it is not a file"):
        read_token(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(cavia.CaviaError, match="it is not a file"):
        read_token(tmp_path / "pipe")
