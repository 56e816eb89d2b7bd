"""What other systems ask for: locks without modules that only Unix has, files closed before they are renamed."""

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

import cavia
from cavia import locking
from cavia.locking import try_lock
from cavia.tensor_file import write_atomically
from cavia.training.checkpoint import RunFolder

UNIX_ONLY = ("fcntl", "resource", "pwd", "grp", "termios")


def missing(monkeypatch, *names, **instead):
    """As on a system without these modules, and with others instead."""
    original = locking._module
    monkeypatch.setattr(locking, "_module", lambda name: None if name in names else instead.get(name) or original(name))
    locking._warn_once.cache_clear()


def test_a_locked_file_is_refused_until_it_is_closed(tmp_path):
    with (tmp_path / "a").open("w") as file:
        assert try_lock(file)
        with (tmp_path / "a").open("w") as again:
            assert not try_lock(again)
    with (tmp_path / "a").open("w") as file:
        assert try_lock(file)


def test_windows_locks_by_its_own_means(tmp_path, monkeypatch):
    locked = []

    def locking_of_windows(descriptor, mode, count):
        if locked:
            raise OSError(13, "Permission denied")
        locked.append((mode, count))

    missing(monkeypatch, "fcntl", msvcrt=SimpleNamespace(locking=locking_of_windows, LK_NBLCK=2))
    with RunFolder(tmp_path).lock():
        assert locked == [(2, 1)]
        with pytest.raises(cavia.CaviaError, match="another process is at work"), RunFolder(tmp_path).lock():
            pass


def test_without_locks_one_warning_is_all(tmp_path, monkeypatch):
    missing(monkeypatch, "fcntl", "msvcrt")
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=2), "mse")
    arguments = {"validation": cavia.Validation(0), "progress": False}
    with pytest.warns(UserWarning, match="files cannot be locked here"):
        cavia.fit(learner, cavia.Sine(), 1, run_dir=RunFolder(tmp_path / "run", events=False), **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cavia.fit(learner, cavia.Sine(), 2, run_dir=RunFolder(tmp_path / "run", events=False), **arguments)


@pytest.mark.slow
def test_cavia_trains_without_the_modules_that_only_unix_has(tmp_path):
    code = f"""if True:
        import sys, os, torch  # which may use them where they are
        sys.modules |= dict.fromkeys({UNIX_ONLY})  # from here on an import of one of them fails
        for name in ("sched_getaffinity", "register_at_fork", "fork"):
            if hasattr(os, name):
                delattr(os, name)
        import cavia
        from cavia import *
        from cavia.cli import main
        learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=2), "mse")
        folder, validation = cavia.RunFolder(sys.argv[1], events=False), cavia.Validation(3)
        cavia.fit(learner, cavia.Sine(), 2, run_dir=folder, validation=validation, progress=False)
        assert main(["evaluate", sys.argv[1], "--tasks", "2"]) == 0"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="shows open files on Linux only")
def test_a_file_is_closed_before_it_takes_its_place_where_locks_do_not_outlast_that(tmp_path, monkeypatch):
    missing(monkeypatch, "fcntl", "msvcrt")
    replace, were_open = Path.replace, []

    def watched(self, target):
        links = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
        were_open.append(self in [link.readlink() for link in links])
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_atomically(tmp_path / "a", b"content")
    assert were_open == [False]
    assert (tmp_path / "a").read_bytes() == b"content"
