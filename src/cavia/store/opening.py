"""Which database a store's name means: a file, or a server by its URL."""

import re
from os import PathLike

from cavia.errors import CaviaError
from cavia.store.backend import Backend
from cavia.store.database import Database
from cavia.tensor_file import checked_path

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
SERVERS = ("postgresql", "postgres")


def is_url(path: object) -> bool:
    """Whether the name of a store is a URL, not that of a file."""
    return isinstance(path, str) and URL.match(path) is not None


def open_backend(path: str | PathLike[str], create: bool, timeout: float) -> Backend:
    """The database of this name, made if `create`. A transaction waits at most `timeout` seconds for others."""
    if isinstance(path, str) and (scheme := URL.match(path)):
        if scheme.group(1).lower() not in SERVERS:
            raise CaviaError(f"a store is a file or a postgresql:// URL, got one that begins {scheme.group(0)}")
        from cavia.store.postgres import Server

        return Server(path, create, timeout)
    file = checked_path(path)
    if any(file.parts[:1] == (f"{name}:",) for name in SERVERS):  # "." has no parts
        raise CaviaError("a URL must be a string: a Path drops one of its slashes")
    return Database(file, create, timeout)
