"""What a process may use of its machine."""

import pytest

from cavia import machine


@pytest.mark.parametrize(
    ("limit", "processes", "threads"),
    [(None, 2, 4), (None, 16, 1), ("1", 2, 1), ("2", 2, 2), ("64", 2, 4), ("0", 2, 1), ("4,2", 2, 4), ("", 2, 4)],
)
def test_threads_are_a_share_of_the_cores_or_fewer(monkeypatch, limit, processes, threads):
    monkeypatch.setattr(machine, "cores", lambda: 8)
    if limit is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert machine.threads_each(processes) == threads
