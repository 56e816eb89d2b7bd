"""A store on a PostgreSQL server: many writers, lost connections, errors of one line without passwords."""

import multiprocessing
import os
import sys
import threading

import pytest
import torch

import cavia
from tests.store.test_database import VERSION, WRITER, start, whole_batches

pytest.importorskip("psycopg")
SECRET = "secret-word"


@pytest.fixture
def store(url):
    with cavia.ContextStore(url, VERSION) as store:
        yield store


def change(url, order, *values):
    """Change the store's tables behind its back; {} is its name."""
    import psycopg

    address, name = url.split("&store=")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(order.format(name), values)


def test_many_contexts_are_put_at_once_and_replaced(store):
    ids = [f"task {n}" for n in torch.randperm(2000).tolist()]
    store.put(ids[:1500], torch.zeros(1500, 3))
    store.put(ids[::-1], torch.arange(2000.0)[:, None].expand(-1, 3))
    assert store.ids == ids[:1500] + ids[:1499:-1]  # in the order in which they were first put
    assert store.get(ids).context[:, 0].tolist() == list(range(1999, -1, -1))
    store.put(ids[:3], torch.ones(3, 3))
    assert len(store) == 2000
    assert store.get(ids[:3]).context.eq(1).all()


def test_one_database_holds_several_stores(server, url):
    other = server.url(store="another_one")
    with cavia.ContextStore(url, VERSION) as store, cavia.ContextStore(other, "version two") as second:
        store.put([1], torch.zeros(1, 2))
        second.put(["a"], torch.zeros(1, 5))
        assert (store.ids, second.ids) == ([1], ["a"])
    with pytest.raises(cavia.CaviaError, match="holds contexts of model version version two, not of"):
        cavia.ContextStore(other, VERSION)


def test_the_password_is_never_shown(server, url, store):
    assert SECRET in url
    assert SECRET not in repr(store) + str(store.path)
    bad = [
        "postgresql://ann:secret-word@127.0.0.1:1/db",
        "postgresql://ann:secret-word@127.0.0.1:one/db",
        "postgresql://ann:secret-word@[::1/db",
        "postgresql://ann:secret-word@localhost/db?colour=red",
        "postgresql://ann:x@secret-word@localhost/db",
        "postgresql://ann:x/secret-word@localhost/db",
        "postgresql://ann:x?secret-word@localhost/db",
        "postgresql://ann:x#secret-word@localhost/db",
        "postgresql://ann@127.0.0.1:1/db?password=secret-word",
        "postgresql://ann:secret-word@127.0.0.1:1/db?store=Users",
        "postgresql://ann:secret-word@127.0.0.1:1/db?store=a&store=b",
        "postgresql://ann:secret-word@local\ud800host/db",
        "postgresql://ann:secret-word@127.0.0.1:1/d%0Ab?store=users",
        "mysql://ann:secret-word@127.0.0.1/db",
        server.url("no_such_database"),
    ]
    for wrong in bad:
        with pytest.raises(cavia.CaviaError) as raised:
            cavia.ContextStore(wrong, VERSION, timeout=1)
        said = str(raised.value)
        assert SECRET not in said
        assert "\n" not in said
        assert raised.value.__cause__ is None


def test_a_lost_connection_is_made_again(store, url):
    store.put(["a"], torch.ones(1, 2))
    order = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cavia' AND pid <> 0"
    change(url, order)
    assert store.get(["a"]).context.tolist() == [[1, 1]]
    change(url, order)
    store.put(["b"], torch.ones(1, 2))
    assert store.ids == ["a", "b"]


@pytest.mark.slow
def test_a_server_that_is_gone_is_one_line_until_it_is_back(store, server):
    store.put(["a"], torch.ones(1, 2))
    server.stop()
    try:
        for _ in range(2):
            with pytest.raises(
                cavia.CaviaError, match=r"cannot reach the store postgresql://.* try it again"
            ) as raised:
                store.get(["a"])
            assert "\n" not in str(raised.value)
            assert SECRET not in str(raised.value)
    finally:
        server.start()
    assert store.get(["a"]).context.tolist() == [[1, 1]]


def test_a_writer_waits_for_those_who_write_the_same_ids_only(url, monkeypatch):
    monkeypatch.setattr("cavia.store.postgres.SHORTEST", 60)  # seconds to connect: that is not what is timed
    with cavia.ContextStore(url, VERSION) as store, cavia.ContextStore(url, VERSION, timeout=0.1) as other:
        store.put(["a", "b"], torch.zeros(2, 2))
        with store._database.writing() as transaction:
            transaction.numbers(["a"])  # as a deletion does
            other.put(["b", "c"], torch.ones(2, 2))
            with pytest.raises(cavia.CaviaError, match=r"another process has been writing to .* more than 0.1 s"):
                other.put(["a"], torch.ones(1, 2))
            assert other.ids == ["a", "b", "c"]  # readers do not wait
        other.put(["a"], torch.ones(1, 2))


def test_writers_of_the_same_ids_in_any_order_do_not_block_each_other(url):
    ids = [f"task {n}" for n in range(700)]
    failed = []

    def write(number):
        try:
            with cavia.ContextStore(url, VERSION) as store:
                order = torch.randperm(700, generator=torch.Generator().manual_seed(number)).tolist()
                for _ in range(3):
                    store.put([ids[n] for n in order], torch.full((700, 2), float(number)))
        except cavia.CaviaError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with cavia.ContextStore(url) as store:
        assert len(store) == 700
        assert len(store.get(ids).context.unique()) == 1  # a call happens as a whole


@pytest.mark.slow
def test_two_processes_write_and_one_reads(url):
    writers = [start(WRITER, url, number, 0, 25) for number in range(2)]  # both make the store
    for writer in writers:
        writer.stdout.readline()
    with cavia.ContextStore(url, VERSION) as store:
        while any(writer.poll() is None for writer in writers):
            whole_batches(store)
        for number, writer in enumerate(writers):
            writer.communicate()
            assert writer.returncode == 0
            assert whole_batches(store, number) == set(range(25))


@pytest.mark.slow
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_store_can_be_used_on_both_sides_of_a_fork(url):
    code = f"""
        import os, sys, torch, cavia
        with cavia.ContextStore(sys.argv[1], "{VERSION}") as store:
            store.put([0], torch.zeros(1, 2))
            children = []
            for child in range(1, 4):
                children.append(os.fork())
                if not children[-1]:
                    store.put([child], torch.ones(1, 2))
                    os._exit(0)
            store.put([10], torch.ones(1, 2))
            print([os.waitpid(child, 0)[1] for child in children], store.ids)
    """
    assert start(code, url).communicate()[0] == "[0, 0, 0] [0, 1, 2, 3, 10]\n"


def test_a_put_that_fails_midway_leaves_nothing(store, monkeypatch):
    def fails_midway(layout, contexts):
        yield b"12345678"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cavia.store.layout.Layout.pack", fails_midway)
        with pytest.raises(KeyboardInterrupt):
            store.put(["a", "b"], torch.zeros(2, 2))
    assert len(store) == 0
    store.put([1], torch.zeros(1, 3))  # of another layout: that of the failed put was not kept


def test_a_damaged_row_is_named(store, url):
    store.put([3, 4], torch.randn(2, 4))
    change(url, "UPDATE cavia_contexts_{} SET context = %s WHERE id = 4", b"\1" * 16)
    for read in (lambda: store.get([3, 4]), lambda: store.ids, lambda: store.nearest([4])):
        with pytest.raises(cavia.CaviaError, match="differ from those put, 4;"):
            read()
    store.delete([4])
    assert store.ids == [3]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("UPDATE cavia_about_{} SET value = '7' WHERE name = 'format'", "has format 7, this version of cavia reads 1"),
        ("DELETE FROM cavia_about_{}", "is a table of another program"),
        ("ALTER TABLE cavia_about_{} RENAME COLUMN value TO other", "is a table of another program"),
        ("UPDATE cavia_about_{} SET value = '7' WHERE name = 'version'", "its version must be a string, got 7"),
        ("DROP TABLE cavia_about_{}", "there is no store"),
    ],
)
def test_what_is_no_store_is_refused(store, url, order, message):
    store.close()
    change(url, order)
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.ContextStore(url)


def test_other_refusals_are_one_line(store, url):
    with pytest.raises(cavia.CaviaError, match="at most 2600 bytes, got 3000"):
        store.put(["x" * 3000], torch.zeros(1, 2))
    store.put(["a"], torch.zeros(1, 2))
    change(url, "DROP TABLE cavia_contexts_{}")
    with pytest.raises(cavia.CaviaError, match="was deleted meanwhile"):
        store.get(["a"])
    store.close()
    with pytest.raises(cavia.CaviaError, match="is closed; open it again"):
        len(store)
    with pytest.raises(cavia.CaviaError, match="a URL must be a string"):
        cavia.ContextStore(__import__("pathlib").Path(url), VERSION)


def test_without_psycopg_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "cavia.store.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(cavia.CaviaError, match=r"pip install 'cavia-torch\[postgres\]'"):
        cavia.ContextStore(f"postgresql://localhost/{os.getpid()}", VERSION)
