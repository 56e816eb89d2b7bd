"""The URL of a store on a PostgreSQL server: where to connect, which store, and how messages name it."""

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from cavia.errors import CaviaError, shown

DEFAULT = "default"  # the store of a URL that names none
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
FORM = "postgresql://user:password@host:5432/database?store=name"


class Address(NamedTuple):
    """How to reach a store.

    options: what libpq needs to connect.
    store:   the name of the store in its database.
    shown:   the URL without passwords, for messages.
    """

    options: dict[str, Any]
    store: str
    shown: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """Errors never quote the URL: a misplaced character may make libpq take the password for a host."""
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict

        try:
            parts = urlsplit(url)
            query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise CaviaError(f"the URL of the store cannot be read; its form is {FORM}") from None
        if "\0" in url or parts.fragment or "#" in url or url.count("@") > ("@" in parts.netloc):
            raise CaviaError("in the URL of a store, write @ / ? # in a user's name or password as %40 %2F %3F %23")
        names = [value for name, value in query if name == "store"] or [DEFAULT]
        if len(names) > 1 or not NAME.fullmatch(names[0]):
            raise CaviaError(
                "?store= must be one name of at most 40 lower-case letters, digits and _ that begins with a letter, "
                f"got {', '.join(map(shown, names))}"
            )
        try:
            rest = urlencode([(name, value) for name, value in query if name != "store"], quote_via=quote)
            options = conninfo_to_dict(urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")))
            return cls(options, names[0], _shown(options, names[0]))
        except (Error, ValueError):  # or bytes that are not Unicode
            raise CaviaError(f"the URL of the store cannot be read; its form is {FORM}") from None


def _shown(options: dict[str, Any], store: str) -> str:
    """Quoted, so that it is one line whatever was in it."""
    user, port, database = (quote(str(options.get(name) or "")) for name in ("user", "port", "dbname"))
    host = quote(str(options.get("host") or options.get("hostaddr") or ""), safe="/:,")
    folder = f"host={host}&" if "/" in host else ""  # of a socket
    server = f"{user}@" * bool(user) + host * (not folder) + f":{port}" * bool(port)
    return f"postgresql://{server}/{database}?{folder}store={store}"
