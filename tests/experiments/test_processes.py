import gc
import os
import signal
import subprocess
import sys

import cavia
from cavia.experiments.display import Display
from cavia.experiments.processes import start_process
from cavia.training.progress import Progress


def say_how_it_is(word, send):
    send.send((word, signal.getsignal(signal.SIGINT), gc.isenabled(), os.environ.get("CAVIA_WORD")))


def test_a_process_has_the_environment_of_now_is_deaf_to_ctrl_c_and_collects_garbage(monkeypatch):
    for word in ("one", "two"):  # forked from the same server
        monkeypatch.setenv("CAVIA_WORD", word)
        process, messages = start_process(say_how_it_is, word)
        assert messages.recv() == (word, signal.SIG_IGN, True, word)
        process.join()
        assert process.exitcode == 0


def test_a_process_that_is_killed_says_so():
    process, messages = start_process(wait_for_ever)
    assert messages.recv() == "waiting"
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def wait_for_ever(send):
    send.send("waiting")
    signal.pause()


def test_import_cavia_leaves_pytorch_to_the_first_use():
    code = "import sys, cavia; assert 'torch' not in sys.modules; cavia.MLP; assert 'torch' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_public_names_are_there():
    for name in cavia.__all__:
        assert getattr(cavia, name) is not None
    assert set(cavia.__all__) <= set(dir(cavia))


def test_without_a_terminal_a_cell_is_shown_when_it_starts(capsys):
    state = Progress(1, 500, loss=4.0, score=None, per_second=0.0, seconds_left=1.0, share=0.002)
    with Display("table1", total=1, finished=0) as display:
        display.progress("CAVIA", state)
        display.progress("CAVIA", state)  # a moment later
    assert capsys.readouterr().err.count("iteration 1/500") == 1
