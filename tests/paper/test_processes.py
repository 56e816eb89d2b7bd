import gc
import itertools
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cavia.errors import CaviaError
from cavia.paper.running import processes
from cavia.paper.running.processes import start_process


def say_how_it_is(word, send):
    signals = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    send.send((word, signals, gc.isenabled(), os.environ.get("CAVIA_WORD")))


@pytest.mark.slow
def test_a_process_has_the_environment_of_now_is_deaf_to_ctrl_c_and_collects_garbage(monkeypatch):
    for word in ("one", "two"):  # forked from the same server
        monkeypatch.setenv("CAVIA_WORD", word)
        process, messages = start_process(say_how_it_is, word)
        assert messages.recv() == (word, [signal.SIG_IGN, signal.SIG_DFL], True, word)
        process.join()
        assert process.exitcode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="there is no server")
def test_threads_that_start_the_server_at_once_leave_the_environment_as_it_was(monkeypatch):
    monkeypatch.delenv(processes.SAFE_PATH, raising=False)
    turns = itertools.count(1)  # who begins first ends first, and would take back what the others still need
    monkeypatch.setattr("multiprocessing.forkserver.ensure_running", lambda: time.sleep(0.05 * next(turns)))
    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(lambda _: processes.start_server(), range(3)))
    assert processes.SAFE_PATH not in os.environ


def test_importing_the_servers_set_up_elsewhere_changes_nothing():
    import cavia.paper.running.server

    assert gc.isenabled()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert cavia.paper.running.server.__doc__


def test_without_a_server_a_process_is_started_anew(monkeypatch):
    monkeypatch.setattr(processes, "start_server", lambda: False)
    process, messages = start_process(say_how_it_is, "alone")
    assert messages.recv()[:2] == ("alone", [signal.SIG_IGN, signal.SIG_DFL])
    process.join()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no server")
def test_a_server_that_has_died_is_one_line(monkeypatch):
    def die(self):
        raise EOFError("unexpected EOF")

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", die)
    with pytest.raises(CaviaError, match="has died"):
        start_process(say_how_it_is, "never")


def test_a_process_that_is_killed_says_so():
    process, messages = start_process(wait_for_ever)
    assert messages.recv() == "waiting"
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def wait_for_ever(send):
    send.send("waiting")
    time.sleep(600)
