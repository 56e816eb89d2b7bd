"""What tests of several folders share."""

from contextlib import nullcontext

import pytest

from tests.graphs import as_traced

INDUCTOR = pytest.param("Inductor", marks=[pytest.mark.slow, pytest.mark.check])


@pytest.fixture(scope="module", params=["traced", INDUCTOR])
def compiler(request):
    """A test of compiled graphs twice: with graphs that run as they were traced, and with Inductor's."""
    with as_traced() if request.param == "traced" else nullcontext():
        yield request.param
