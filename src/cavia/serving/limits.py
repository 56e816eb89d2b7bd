"""Limits of one request, and refusals."""

from dataclasses import dataclass

from cavia.errors import CaviaError, one_line, shown

LONGEST_ID = 500  # of an id


class Refused(Exception):
    """A request that is answered with a status other than 200, and one line that says why."""

    def __init__(self, status: int, message: object):
        super().__init__(one_line(str(message)))
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Per request, except `waiting`.

    body:    bytes.
    tasks:   tasks.
    points:  points or rows, of all tasks together.
    seconds: to send the body, and to wait until its turn comes.
    waiting: requests that wait for their turn.
    """

    body: int = 4 * 2**20
    tasks: int = 1000
    points: int = 10_000
    seconds: float = 30.0
    waiting: int = 2000

    def check(self, what: str, count: int) -> None:
        """what: "tasks" or "points"."""
        most = getattr(self, what)
        if count > most:
            raise Refused(422, f"{count} {what} in one request, at most {most}; send them in parts")


def checked_id(id: str) -> str:
    """The id of a task, if a store takes it and a URL can name it."""
    if not id or len(id) > LONGEST_ID:
        raise CaviaError(f"an id has 1 to {LONGEST_ID} characters, got {len(id)}")
    if "\0" in id:
        raise CaviaError(f"an id must not hold the character NUL, got {shown(id)}")
    return id
