"""`cavia serve` as a process: what it says, how it ends, and what is left when it is killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.client import HTTPException

import pytest

import cavia
from cavia.cli import main

POINTS = {"x": [[1, 2], [3, 4]], "y": [[1], [2]]}
LONG = 120  # seconds: a busy machine is no fault


def post(url, body, token=None):
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=LONG) as response:
        return json.load(response)


def connected(url):
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=LONG)


def head(length, more=""):
    """Of a request to adapt."""
    lines = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}"
    return f"POST /adapt HTTP/1.1\r\n{lines}\r\n".encode()


@contextmanager
def process(*arguments, **environment):
    """The process, and the URL that it serves at."""
    order = [sys.executable, "-m", "cavia", "serve", *map(str, arguments), "--port", "0", "--no-compile"]
    own = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own) as running:
        try:
            first = running.stdout.readline()
            second = running.stdout.readline()
            assert second.startswith("serving at "), (first, second, running.stderr.read() if not second else "")
            yield running, re.search(r"http://\S+?:\d+", second).group()
        finally:
            if running.poll() is None:
                running.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_what_it_was_asked_is_answered(learner_file, tmp_path, number):
    """A request that waits for its batch when the signal comes is answered, and stored."""
    order = [learner_file / "curves.cavia", "--store", tmp_path / "s", "--batch-ms", "1000"]
    body = json.dumps({"tasks": {"ann": POINTS}}).encode()
    with process(*order) as (running, url), connected(url) as client:
        client.sendall(head(len(body), "Expect: 100-continue\r\n"))
        assert client.recv(1000).startswith(b"HTTP/1.1 100")  # it was taken: from here on the signal may come
        client.sendall(body)
        time.sleep(0.4)
        running.send_signal(number)
        answer = b"".join(iter(lambda: client.recv(10_000), b""))
        out, err = running.communicate(timeout=LONG)
    assert answer.startswith(b"HTTP/1.1 200")
    context = json.loads(answer.partition(b"\r\n\r\n")[2])["tasks"]["ann"]["context"]
    assert running.returncode == 0
    assert out == f"ended; 1 contexts in {tmp_path / 's'}\n"
    assert err == ""
    with cavia.ContextStore(tmp_path / "s") as store:
        assert store.get(["ann"]).context[0].tolist() == context


@pytest.mark.slow
def test_a_killed_process_loses_no_context_that_it_answered_with(learner_file, tmp_path):
    with process(learner_file / "curves.cavia", "--store", tmp_path / "s") as (running, url):
        answered = {}

        def ask(client):
            try:
                for i in range(10_000):
                    name = f"{client}-{i}"
                    answered[name] = post(f"{url}/adapt", {"tasks": {name: POINTS}})["tasks"][name]["context"]
            except (OSError, HTTPException):  # the connection is refused, or ends within an answer
                return

        clients = [threading.Thread(target=ask, args=(client,)) for client in range(4)]
        for one in clients:
            one.start()
        deadline = time.monotonic() + LONG
        while len(answered) < 50 and time.monotonic() < deadline:
            time.sleep(0.005)
        running.kill()
        for one in clients:
            one.join(LONG)
    assert len(answered) >= 50
    with cavia.ContextStore(tmp_path / "s") as store:
        assert store.get(list(answered)).context.tolist() == list(answered.values())


@pytest.mark.slow
def test_other_addresses_with_a_token(learner_file, tmp_path):
    token = tmp_path / "token"
    token.write_text("a" * 40)
    token.chmod(0o600)
    with process(learner_file / "curves.cavia", "--host", "0.0.0.0", "--token-file", token) as (_, url):
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert post(f"{url}/adapt", {"tasks": {"ann": POINTS}}, "a" * 40)["tasks"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(f"{url}/adapt", {"tasks": {"ann": POINTS}}, "b" * 40)


@pytest.mark.slow
def test_a_body_that_does_not_come_is_not_waited_for(learner_file):
    with process(learner_file / "curves.cavia", "--timeout", "0.2") as (_, url), connected(url) as client:
        client.sendall(head(9) + b"{")
        response = client.recv(10_000).decode()
    assert response.startswith("HTTP/1.1 408")


def refused(capsys, *arguments):
    assert main(["serve", *map(str, arguments)]) == 2
    output = capsys.readouterr()
    assert not output.out
    assert output.err.count("\n") == 1
    return output.err


def test_misuse_is_one_line(learner_file, tmp_path, capsys, monkeypatch):
    model = learner_file / "curves.cavia"
    assert "there is no trained model" in refused(capsys, tmp_path / "none.cavia")
    (tmp_path / "bad.cavia").write_bytes(model.read_bytes()[:100])
    assert "bad.cavia" in refused(capsys, tmp_path / "bad.cavia", "--port", 0)
    assert "give --token-file" in refused(capsys, model, "--host", "0.0.0.0")
    assert "No such file" in refused(capsys, model, "--token-file", tmp_path / "none")
    assert "unknown argument '--prot'; did you mean '--port'?" in refused(capsys, model, "--prot", 1)
    assert "must be at most 65535, got '99999'" in refused(capsys, model, "--port", 99999)
    assert "database of another program" in refused(capsys, model, "--port", 0, "--store", _database(tmp_path))
    assert "there is no store ." in refused(capsys, model, "--port", 0, "--store", ".")
    assert "begins redis://" in refused(capsys, model, "--port", 0, "--store", "redis://x")
    assert "cannot serve MAML" in refused(capsys, learner_file / "maml.cavia", "--port", 0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(capsys, model, "--port", port)
        assert (
            said == f"cavia: cannot listen on 127.0.0.1, port {port}: Address already in use; choose another --port\n"
        )
    for name in ("fastapi", "uvicorn", "prometheus_client"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            said = f"cavia serve needs {name.replace('_', '-')}: pip install 'cavia-torch[serve]'"
            assert said in refused(capsys, model)


def _database(folder):
    import sqlite3

    with sqlite3.connect(folder / "other.db") as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()
    return folder / "other.db"


def test_another_version_of_the_model_is_refused_with_both_named(learner_file, tmp_path, capsys):
    other = cavia.CAVIA(cavia.MLP(2, 1, context=3), "mse")
    cavia.ContextStore(tmp_path / "s", other).close()
    said = refused(capsys, learner_file / "curves.cavia", "--port", 0, "--store", tmp_path / "s")
    assert other.version in said
    assert cavia.load(learner_file / "curves.cavia").version in said
