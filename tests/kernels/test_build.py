"""Building the kernels: once, atomically, and never in the way of those who cannot."""

import os
import signal
import subprocess
import sys
import time
import warnings

import pytest
import torch

import cavia
from cavia.kernels import build
from cavia.kernels.build import FLAGS, digest, library, load


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A library that was really built."""
    path = tmp_path_factory.mktemp("built") / "stem.so"
    load(FLAGS)
    path.write_bytes((build.cache_folder() / "kernels" / f"kernels-{digest(FLAGS)}.so").read_bytes()[:-32])
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "cache"))
    library.cache_clear()
    yield tmp_path / "cache"
    library.cache_clear()


def compiler(folder, monkeypatch, script):
    """A compiler that does this; $out is where the library is wanted."""
    path = folder / "cxx"
    path.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nout=$2\n{script}\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


def forward():
    torch.manual_seed(0)
    model = cavia.ConvNet(3, 16, image=16, channels=1, context=2)
    return model(torch.rand(1, 2, 1, 16, 16, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 2))


def assert_plain_with_one_line(match):
    with pytest.warns(UserWarning, match=match) as caught:
        forward()
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert forward().isfinite().all()  # and it is said once only


def test_it_is_built_once(cache, built, tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, f'echo >> {tmp_path}/log; cp {built} "$out"')
    for _ in range(2):
        library.cache_clear()
        assert library() is not None
        forward()
    assert (tmp_path / "log").read_text() == "\n"
    assert [path.name for path in (cache / "kernels").iterdir()] == [f"kernels-{digest(FLAGS)}.so"]


def test_the_key_knows_source_flags_pytorch_and_processor(tmp_path, monkeypatch):
    before = {digest(FLAGS)}
    before.add(digest((*FLAGS, "-g")))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "0")
        before.add(digest(FLAGS))
    with monkeypatch.context() as patch:
        patch.setattr(build, "_processor", lambda: "abacus")
        before.add(digest(FLAGS))
    for file in build.SOURCE.iterdir():
        (tmp_path / file.name).write_text(file.read_text() + "\n")
    monkeypatch.setattr(build, "SOURCE", tmp_path)
    before.add(digest(FLAGS))
    assert len(before) == 5


def test_no_compiler(cache, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert_plain_with_one_line("there is no C.. compiler; install g.. or clang.., or set CXX")


def test_a_compiler_that_is_not_there(cache, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert_plain_with_one_line("the compiler /nowhere/c.. No such file or directory; set CXX to one that works")


def test_a_compiler_that_fails(cache, tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, 'echo "warning: odd\nstem.cpp:1: fatal error: no such header\nmore" >&2; exit 1')
    assert_plain_with_one_line(r"failed \(stem.cpp:1: fatal error: no such header\); set CXX to one that works")
    assert not list((cache / "kernels").iterdir())


def test_a_compiler_that_writes_rubbish(cache, tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, 'echo rubbish > "$out"')
    assert_plain_with_one_line("cannot be loaded")


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch, cache):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "file" / "cache"))
    assert_plain_with_one_line("cannot write to the cache .*; set CAVIA_CACHE to another folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_cache(cache):
    cache.mkdir()
    cache.chmod(0o555)
    assert_plain_with_one_line("cannot write to the cache .*; set CAVIA_CACHE to another folder")


def test_a_damaged_library_is_built_anew(cache, built, tmp_path, monkeypatch):
    (cache / "kernels").mkdir(parents=True)
    (cache / "kernels" / f"kernels-{digest(FLAGS)}.so").write_bytes(built.read_bytes()[:1000])
    compiler(tmp_path, monkeypatch, f'cp {built} "$out"')
    assert library() is not None


@pytest.mark.slow
def test_a_build_that_was_killed_does_not_hang_the_next(cache, built, tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, f'head -c 1000 {built} > "$out"; echo > {tmp_path}/started; sleep 600')
    code = "from cavia.kernels.build import library; library()"
    other = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while not (tmp_path / "started").exists():
        assert other.poll() is None
        time.sleep(0.05)
    os.killpg(other.pid, signal.SIGKILL)
    other.wait()
    assert list((cache / "kernels").iterdir())  # what it left behind
    compiler(tmp_path, monkeypatch, f'cp {built} "$out"')
    assert library() is not None


@pytest.mark.slow
def test_two_processes_may_build_at_once(cache, built, tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, f'cp {built} "$out"; sleep 1')
    code = "from cavia.kernels.build import library; assert library() is not None"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [other.wait() for other in others] == [0, 0]
    assert len(list((cache / "kernels").iterdir())) == 1
