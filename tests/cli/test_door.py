"""What stands before every command: any terminal, full devices, paths that lead nowhere, numbers without measure."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cavia.cli import main, make_parser
from cavia.cli.terminal import make_readable, say
from tests.paper.report.results import result, write

CAVIA = [sys.executable, "-m", "cavia"]
SUBCOMMANDS = list(make_parser()._subparsers._group_actions[0].choices)
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def run(arguments, **environment):
    environment = {name: value for name, value in (os.environ | environment).items() if value is not None}
    return subprocess.run([*CAVIA, *arguments], capture_output=True, check=False, env=environment)


def refused(arguments, capsys):
    """What main says when it refuses: one line."""
    assert main([str(one) for one in arguments]) == 2
    output = capsys.readouterr()
    assert not output.out
    assert output.err.startswith("cavia: ")
    assert output.err.count("\n") == 1
    return output.err


# Terminals


def test_signs_that_a_terminal_lacks_are_spelled_out(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", errors="strict"))
    make_readable()
    print("0.20 ± 0.02 – é × φ → \udcff ✓")
    sys.stdout.flush()
    assert written.getvalue().decode("ascii") == "0.20 +- 0.02 - e x phi -> \\udcff \\u2713\n"


def test_an_error_on_an_ascii_terminal_names_the_value_itself(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written, encoding="ascii", errors="strict"))
    make_readable()
    say("the table has no column 'ÿ' – it has 'y'")
    assert written.getvalue().decode("ascii") == "cavia: the table has no column '\\xff' - it has 'y'\n"


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_an_ascii_terminal_shows_tables_and_help(environment, tmp_path):
    for arguments in (["list", "--runs", str(tmp_path)], ["complete", "--help"]):
        done = run(arguments, PYTHONCOERCECLOCALE="0", **{"PYTHONIOENCODING": None} | environment)
        assert done.returncode == 0
        assert not done.stderr
        assert len(done.stdout.decode("ascii")) > 500


def test_an_error_is_one_line_whatever_is_in_it(capsys):
    error = refused(["run", "ta\nb\x1b[31mle\udcff"], capsys)
    assert r"'ta\nb\x1b[31mle\udcff'" in error
    say("a\n" * 5000)
    assert len(capsys.readouterr().err) < 10_000


# Devices that are full


@needs_full
@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_to_a_full_device_is_an_error(unbuffered):
    with Path("/dev/full").open("w") as full:
        for arguments in (["--help"], ["--version"], ["run", "--help"]):
            command = [*CAVIA, *arguments]
            environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, env=environment)
            assert done.returncode == 2
            assert done.stderr == b"cavia: No space left on device\n"
        both = subprocess.run([*CAVIA, "rnu"], stdout=full, stderr=full, check=False)
        assert both.returncode == 2


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_command_fails_where_its_output_cannot_go(name, monkeypatch, capsys):
    """The door flushes for all commands: whatever one prints, it is an error if it is not written."""

    class Full(io.StringIO):
        def flush(self):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert main([name, "--help"]) == 2
    assert capsys.readouterr().err == "cavia: No space left on device\n"


@needs_full
@pytest.mark.slow
def test_files_on_a_full_device_are_one_line(capsys, tmp_path):
    write(tmp_path, result())
    assert "/dev/full" in refused(["report", tmp_path, "--out", "/dev/full"], capsys)
    assert "/dev/full" in refused(["run", "fig4", "--out", "/dev/full"], capsys)


# Paths


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--runs", "PATH"], ["run", "fig4", "--out", "PATH"], ["run", "fig4", "--data-root", "PATH"],
        ["reproduce", "--plan", "PATH"], ["reproduce", "--publish", "PATH"], ["report", "PATH"],
        ["report", "--out", "PATH"], ["evaluate", "PATH"], ["complete", "PATH", "x.png"], ["complete", "x", "PATH"],
        ["watch", "PATH"], ["store", "PATH"], ["store", "x", "--export", "PATH"],
        ["fit", "PATH", "--task", "a", "--target", "b"], ["adapt", "PATH", "x"], ["adapt", "x", "PATH"],
        ["predict", "x", "y", "--contexts", "PATH"], ["embed", "x", "PATH"],
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("path", "problem"),
    [("loop", "Too many levels of symbolic links"), ("loop/inside", "Too many levels of symbolic links"),
     ("a" * 300, "File name too long"), ("a\0b", "")],
)  # fmt: skip
def test_a_path_where_nothing_can_be_is_named(arguments, path, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    error = refused([path if one == "PATH" else one for one in arguments], capsys)
    assert problem in error
    assert repr(path)[:20] in error
    assert [one.name for one in tmp_path.iterdir()] == ["loop"]


def test_no_memory_is_one_line(monkeypatch, capsys, tmp_path):
    from cavia.cli import experiments

    for raised in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 99 bytes\nmore")):
        monkeypatch.setattr(experiments, "_duration", lambda minutes, raised=raised: _raise(raised))
        assert "out of memory; ask for less" in refused(["list", "--runs", tmp_path], capsys)
    monkeypatch.setattr(experiments, "_duration", lambda minutes: _raise(RuntimeError("a mistake of ours")))
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        main(["list", "--runs", str(tmp_path)])


def _raise(error):
    raise error


# Numbers


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "table1", "--seeds", 10**9], "must have at most 10,000 cells, has 3000000000 with 1000000000 seeds"),
        (["run", "table1", "--seeds", HUGE], "argument --seeds: must be at most 9223372036854775807"),
        (["run", "table1", "--set", f"contexts={','.join(['2'] * 20_000)}"], "must have at most 10,000 cells"),
        (["run", "fig4", "--jobs", 10**9], "1000000000 cells at a time (--jobs) needs about"),
        (["run", "fig4", "--set", f"iterations={HUGE}"], "iterations must be at most 1000000000"),
        (["run", "fig4", "--set", f"iterations={HUGE * 20}"], "iterations must be a whole number, got '1000"),
        (["run", "fig4", "--set", f"lr={HUGE}"], "lr must be above 0 and finite"),
        (["run", "fig4", "--set", "hidden=1000000,1000000"], "a network of 1000000000000 weights needs about"),
        (["run", "fig4", "--set", "hidden=10000000000"], "hidden must be at most 1000000, got 10000000000"),
        (["run", "fig4", "--set", "tasks_per_batch=1000000", "--set", "query=1000000"],
         "a batch of 1000000 tasks needs"),
        (["run", "omniglot", "--data", "synthetic", "--filters", 10**6], "weights needs about"),
        (["run", "fig7a", "--set", "horizon=1000000", "--set", "rollouts=1000000"], "a batch of 20 tasks needs about"),
        (["evaluate", "x", "--tasks", 10**12], "--tasks must be at most 1000000, got 1000000000000"),
        (["evaluate", "x", "--steps", 10**12], "--steps must be at most 10000"),
        (["evaluate", "x", "--seed", HUGE], "--seed must be at most"),
        (["complete", "x", "y", "--width", 10**9], "--width must be at most 4096"),
        (["complete", "x", "y", "--size", 10**9], "--size must be at most 1024"),
        (["watch", "x", "--updates", 10**9], "--updates must be at most 100"),
        (["watch", "x", "--task", 10**12], "--task must be at most 100000"),
    ],
)  # fmt: skip
def test_numbers_without_measure_are_refused_with_what_they_would_cost(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert message in refused(arguments, capsys)
    assert not list(tmp_path.iterdir())
