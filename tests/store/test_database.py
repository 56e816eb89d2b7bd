"""An acknowledged write survives kill -9, two writers do no harm, and every failure is one line."""

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import pytest
import torch

import cavia

VERSION = "0123456789abcdef"
BATCH = 20


def start(code, *arguments):
    """A Python process that runs the code, with its output to read line by line."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tasks.store"


WRITER = f"""
    import sys, itertools, torch, cavia
    path, writer, start, stop = sys.argv[1], *map(int, sys.argv[2:])
    with cavia.ContextStore(path, "{VERSION}") as store:
        for batch in range(start, stop):
            ids = [f"{{writer}} {{batch}} {{place}}" for place in range({BATCH})]
            store.put(ids, torch.full(({BATCH}, 50), float(batch)))
            print(batch, flush=True)
"""


def whole_batches(store, writer=0):
    """The numbers of a writer's batches, each of which must be there as a whole, with the right contexts."""
    sizes = {}
    for ids, contexts in store.batches():
        for one, context in zip(ids, contexts, strict=True):
            number, batch, _ = map(int, one.split())
            assert (context == batch).all()
            if number == writer:
                sizes[batch] = sizes.get(batch, 0) + 1
    assert set(sizes.values()) <= {BATCH}
    return set(sizes)


def check_integrity(path):
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


KILLED = f"""
    import itertools, os, sys, torch, cavia
    for begin in sys.stdin:  # a new writer for every line; the modules are imported only once
        if writer := os.fork():
            print("writer", writer, flush=True)
            os.waitpid(writer, 0)
            print("dead", flush=True)
        else:
            store = cavia.ContextStore(sys.argv[1], "{VERSION}")
            for batch in itertools.count(int(begin)):
                ids = [f"0 {{batch}} {{place}}" for place in range({BATCH})]
                store.put(ids, torch.full(({BATCH}, 50), float(batch)))
                os.write(1, f"stored {{batch}}\\n".encode())  # at once: a kill must not cut it
"""


@pytest.mark.slow
def test_kill_loses_no_acknowledged_batch(path):
    chance, acknowledged, begin = random.Random(), set(), 0
    process = start(KILLED, path)
    for _ in range(12):
        process.stdin.write(f"{begin}\n")
        process.stdin.flush()
        lines = []
        while {word for word, _ in lines} != {"writer", "stored"}:  # it runs, and has stored something
            lines.append(process.stdout.readline().split())
        time.sleep(chance.uniform(0, 0.2))
        os.kill(next(int(number) for word, number in lines if word == "writer"), signal.SIGKILL)
        while (line := process.stdout.readline().split()) != ["dead"]:
            lines.append(line)
        acknowledged |= {int(number) for word, number in lines if word == "stored"}
        with cavia.ContextStore(path, VERSION) as store:
            assert acknowledged <= whole_batches(store)
        begin = max(acknowledged) + 2  # the one after may or may not be there
    process.communicate()
    check_integrity(path)


@pytest.mark.slow
def test_two_writers_and_a_reader_do_no_harm(path):
    writers = [start(WRITER, path, number, 0, 25) for number in range(2)]  # both make the file
    for writer in writers:
        writer.stdout.readline()
    with cavia.ContextStore(path, VERSION) as store:
        while any(writer.poll() is None for writer in writers):
            whole_batches(store)
        for number, writer in enumerate(writers):
            writer.communicate()
            assert writer.returncode == 0
            assert whole_batches(store, number) == set(range(25))
    check_integrity(path)


def test_a_writer_that_waits_too_long_says_so(path):
    with cavia.ContextStore(path, VERSION) as store, cavia.ContextStore(path, VERSION, timeout=0.1) as other:
        store.put(["a"], torch.zeros(1, 2))
        with store._database.writing():
            with pytest.raises(cavia.CaviaError, match=r"another process has been writing to .* more than 0.1 s"):
                other.put(["b"], torch.zeros(1, 2))
            assert other.ids == ["a"]  # readers do not wait
        other.put(["b"], torch.zeros(1, 2))


def test_a_put_that_fails_midway_leaves_nothing(path, monkeypatch):
    def fails_midway(layout, contexts):
        yield b"12345678"
        raise KeyboardInterrupt

    with cavia.ContextStore(path, VERSION) as store:
        with monkeypatch.context() as patch:
            patch.setattr("cavia.store.layout.Layout.pack", fails_midway)
            with pytest.raises(KeyboardInterrupt):
                store.put(["a", "b"], torch.zeros(2, 2))
        assert len(store) == 0
        store.put([1], torch.zeros(1, 3))  # of another layout: that of the failed put was not kept


def test_a_full_disk_is_one_line_and_keeps_what_was_there(path):
    with cavia.ContextStore(path, VERSION) as store:
        store.put(range(100), torch.ones(100, 50))
        connection = store._database.connection()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(cavia.CaviaError) as raised:
            store.put(range(100, 5000), torch.zeros(4900, 50))
        assert str(raised.value) == f"cannot write {path}: the disk is full; nothing of this call was stored"
        store.put([100], torch.zeros(1, 50))
        assert len(store) == 101
    check_integrity(path)


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_is_one_line(path):
    code = f"""
        import resource, sys, torch, cavia
        with cavia.ContextStore(sys.argv[1], "{VERSION}") as store:
            store.put(range(100), torch.ones(100, 50))
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            try:
                store.put(range(5000), torch.zeros(5000, 50))
            except cavia.CaviaError as error:
                print(error)
            print(len(store), bool((store.get(range(100)).context == 1).all()))
    """
    message, rest = start(code, path).communicate()[0].splitlines()
    assert message.startswith(f"cannot use the store {path}") or "the disk is full" in message
    assert rest == "100 True"
    with cavia.ContextStore(path) as store:
        assert len(store) == 100


@pytest.mark.slow
def test_a_read_only_folder_can_be_read_and_not_written(tmp_path):
    folder = tmp_path / "folder"
    with cavia.ContextStore(folder / "tasks.store", VERSION) as store:
        store.put(["a"], torch.ones(1, 2))
    folder.chmod(0o555)
    folder.parent.chmod(0o755)
    code = """
        import os, sys, torch, cavia
        cavia.ContextStore  # imported while the interpreter's files can be read
        if os.geteuid() == 0:
            os.setuid(65534)  # root may write anywhere
        with cavia.ContextStore(sys.argv[1] + "/tasks.store") as store:
            print(store.get(["a"]).context.tolist())
            for action in (lambda: store.put(["b"], torch.zeros(1, 2)),
                           lambda: cavia.ContextStore(sys.argv[1] + "/other.store", "version")):
                try:
                    action()
                except cavia.CaviaError as error:
                    print(error)
    """
    if os.geteuid() == 0:
        shared = next(parent for parent in folder.parents if parent.name.startswith("pytest-of-"))
        for parent in (shared, *(parent for parent in folder.parents if shared in parent.parents)):
            parent.chmod(0o755)  # pytest's own folders are private
    read, put, make = start(code, folder).communicate()[0].splitlines()
    folder.chmod(0o755)
    assert read == "[[1.0, 1.0]]"
    assert put == f"cannot write {folder}/tasks.store: the file or its folder is read-only"
    assert make == f"cannot make {folder}/other.store: the folder is read-only"


def test_files_that_are_not_stores_are_refused_and_left_alone(path, tmp_path):
    path.write_bytes(b"not a database at all " * 100)
    with pytest.raises(cavia.CaviaError, match="is damaged or not a cavia store"):
        cavia.ContextStore(path, VERSION)
    assert path.read_bytes() == b"not a database at all " * 100
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    content = other.read_bytes()
    with pytest.raises(cavia.CaviaError, match="is a database of another program"):
        cavia.ContextStore(other, VERSION)
    assert other.read_bytes() == content
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(cavia.CaviaError, match="there is no store"):
            cavia.ContextStore(place)
    (tmp_path / "empty").touch()
    with pytest.raises(cavia.CaviaError, match="is empty; give the learner"):
        cavia.ContextStore(tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_later_format_is_refused(path):
    cavia.ContextStore(path, VERSION).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(cavia.CaviaError, match="has format 3, this version of cavia reads 1 and 2"):
        cavia.ContextStore(path, VERSION)


def test_damage_is_one_line_that_names_the_file(path):
    with cavia.ContextStore(path, VERSION) as store:
        store.put(range(2000), torch.randn(2000, 50))
    content = bytearray(path.read_bytes())
    content[8192:200_000] = os.urandom(200_000 - 8192)
    path.write_bytes(content)
    with cavia.ContextStore(path) as store, pytest.raises(cavia.CaviaError, match=f"{path} is damaged") as raised:
        store.get(range(2000))
    assert "\n" not in str(raised.value)
    path.write_bytes(content[: len(content) // 2])  # cut off
    with pytest.raises(cavia.CaviaError, match=f"{path} is damaged"), cavia.ContextStore(path) as store:
        store.get(range(2000))


def test_a_closed_store_says_so(path):
    store = cavia.ContextStore(path, VERSION)
    store.close()
    store.close()
    with pytest.raises(cavia.CaviaError, match="is closed; open it again"):
        len(store)
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # the log is gone


@pytest.mark.slow
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_store_can_be_used_on_both_sides_of_a_fork(path):
    code = f"""
        import os, sys, torch, cavia
        with cavia.ContextStore(sys.argv[1], "{VERSION}") as store:
            store.put([0], torch.zeros(1, 2))
            children = []
            for child in range(1, 4):
                children.append(os.fork())
                if not children[-1]:
                    for turn in range(5):
                        store.put([100 * child + turn], torch.ones(1, 2))
                    os._exit(0)
            for turn in range(5):
                store.put([1000 + turn], torch.ones(1, 2))
            print([os.waitpid(child, 0)[1] for child in children], len(store))
    """
    assert start(code, path).communicate()[0] == "[0, 0, 0] 21\n"
    check_integrity(path)


@pytest.mark.slow
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_many_processes_may_make_the_same_store(tmp_path):
    code = f"""
        import os, sys, torch, cavia
        for turn in range(10):
            path, children = f"{{sys.argv[1]}}/{{turn}}", []
            for child in range(5):
                children.append(os.fork())
                if not children[-1]:
                    with cavia.ContextStore(path, "{VERSION}") as store:
                        store.put([child], torch.ones(1, 2))
                    os._exit(0)
            failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
            with cavia.ContextStore(path) as store:
                print(failed, store.ids)
    """
    assert start(code, tmp_path).communicate()[0].splitlines() == ["0 [0, 1, 2, 3, 4]"] * 10
