"""Access: anyone with the token, or anyone on this machine if there is none."""

import hmac
import ipaddress
import re
import stat
from pathlib import Path

from cavia.errors import CaviaError, named

LEAST_CHARACTERS = 16
MAKE_ONE = "(umask 077; openssl rand -hex 32 > token)"
HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[^:]*)(:\d*)?")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read."""
    try:
        mode = path.stat().st_mode
        text = path.read_text() if stat.S_ISREG(mode) else None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise CaviaError(f"cannot read --token-file {named(path)}: {why}; make one: {MAKE_ONE}") from error
    if text is None:
        raise CaviaError(f"cannot read --token-file {named(path)}: it is not a file; make one: {MAKE_ONE}")
    if mode & 0o077:
        raise CaviaError(f"--token-file {named(path)} can be read by others; chmod 600 {named(path)}")
    token = text.strip()
    if len(token) < LEAST_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise CaviaError(
            f"--token-file {named(path)} must hold one word of at least {LEAST_CHARACTERS} letters and digits, got "
            f"{len(token)} characters; make one: {MAKE_ONE}"
        )
    return token


class Gate:
    """Decides who has access.

    token: what `Authorization: Bearer …` must say; None: everybody who reaches us by a loopback name. Pages in a
           browser on this machine could else make a name of their own point here, and ask in the user's place.
    """

    def __init__(self, token: str | None):
        self.expected = None if token is None else f"Bearer {token}".encode()

    def refusal(self, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Status and reason, or None."""
        if self.expected is not None:
            given = headers.get(b"authorization", b"")
            if hmac.compare_digest(given, self.expected):
                return None
            return 401, "the token is missing or wrong; send it as Authorization: Bearer …"
        match = HOST.fullmatch(headers.get(b"host", b""))
        if match and is_loopback(match.group(1).decode("ascii", "replace").strip("[]")):
            return None
        return 403, "without a token, only requests to localhost are answered"
