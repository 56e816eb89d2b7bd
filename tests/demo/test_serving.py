"""`cavia demo` at the command line: its port, its end, and what it needs."""

import signal
import socket
import subprocess
import sys

import pytest

from cavia.cli import main

DEMO = [sys.executable, "-m", "cavia", "demo", "--no-browser"]


def refused(capsys, *arguments):
    assert main(["demo", "--no-browser", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_a_port_in_use_is_one_line(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = f"cannot listen on 127.0.0.1, port {port}: Address already in use; choose another --port"
        assert words in refused(capsys, "--port", str(port))


@pytest.mark.parametrize("host", ["256.1.1.1", "no such host", "a" * 70, "::zz", "\udc80", "a\0b"])
def test_an_address_that_is_none_is_one_line(capsys, host):
    assert "choose another --host" in refused(capsys, "--port", "0", "--host", host)


def test_no_address_is_not_all_of_them(capsys):
    assert "--host must be an address, got ''" in refused(capsys, "--host", "")


def test_a_port_is_a_number(capsys):
    assert "must be at most 65535" in refused(capsys, "--port", "70000")


def test_without_the_extra_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for module in ("cavia.demo.serving", "cavia.listening"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert "cavia demo needs uvicorn: pip install 'cavia-torch[serve]'" in refused(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_stops(how):
    with subprocess.Popen([*DEMO, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout.readline().startswith("cavia demo at http://127.0.0.1:")
            served.send_signal(how)
            out, error = served.communicate(timeout=300)
        finally:
            served.kill()
    assert not error
    assert how == signal.SIGTERM or (out, served.returncode) == ("stopped\n", 0)
