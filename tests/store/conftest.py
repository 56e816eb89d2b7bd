"""Stores in a file and on a server: the tests of what both promise run twice."""

import itertools

import pytest

from tests.store.server import NoServerError, running

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server of this session, or a reason why there is none."""
    pytest.importorskip("psycopg")
    try:
        context = running()
        server = context.__enter__()
    except NoServerError as error:
        pytest.skip(f"no PostgreSQL server here: {error}")
    yield server
    context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def vectors(server):
    """The name of a database that has pgvector."""
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE vectors")
    with psycopg.connect(server.url("vectors"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return "vectors"


@pytest.fixture(scope="session")
def places(request, tmp_path_factory):
    """Names of stores that no other test uses: `places("file")`, "server", or "pgvector" on the server."""

    def place(kind):
        if kind == "file":
            return tmp_path_factory.mktemp("stores") / "tasks.store"
        server = request.getfixturevalue("server")
        database = request.getfixturevalue("vectors") if kind == "pgvector" else "postgres"
        return server.url(database, store=f"test_{next(NUMBERS)}")

    return place


@pytest.fixture
def url(places):
    """Of a store on the server."""
    return places("server")


@pytest.fixture(params=["file", "server", "pgvector"])
def path(request, places):
    """What a store is opened by: the name of a file, or a URL."""
    return places(request.param)
