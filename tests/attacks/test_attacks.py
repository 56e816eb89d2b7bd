"""A share of the attacks of `make attack`: every misuse gets a right result or a clear error."""

import signal

import attacks.__main__
import pytest
import torch
from attacks.__main__ import KINDS, attack
from attacks.calls import public_calls, right_arguments
from attacks.commands import RIGHT as COMMANDS, subcommands
from attacks.outcomes import CLEAR, RAW, RIGHT, SILENT, Case, outcome, outcomes

import cavia

SHARES = {"calls": 0.005, "commands": 0.02, "files": 0.04}  # `make attack` tries all


@pytest.mark.check
def test_every_public_call_can_be_attacked():
    """Right arguments are known for all of them, new ones included; if one fails, attacks/values.py lacks a value."""
    for name, get in public_calls():
        torch.manual_seed(0)
        call = get()
        call(**right_arguments(name, call))


def test_every_command_is_attacked():
    assert not set(COMMANDS) - set(subcommands())


@pytest.mark.check
@pytest.mark.parametrize("kind", KINDS)
def test_a_share_of_the_attacks_finds_nothing(kind):
    faults = [str(each) for each in attack(kind, 0, SHARES[kind]) if each.kind in (RAW, SILENT)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (lambda: 1.0, RIGHT),
        (lambda: float("nan"), SILENT),
        (lambda: int("text"), RAW),
        (lambda: _raise("rate must be above 0, got 'text'"), CLEAR),
        (lambda: _raise("something is wrong"), RAW),
    ],
)
def test_outcomes_are_told_apart(run, kind):
    def judge(result):
        return None if result == result else "not a number"

    assert outcome(Case("call", "rate", "text", run, judge=judge)).kind == kind


def test_a_case_that_kills_its_process_is_raw_and_the_next_ones_are_tried():
    import os

    cases = [Case("call", "a", 1, run) for run in (lambda: 1, lambda: os._exit(3), lambda: 2)]
    assert [each.kind for each in outcomes(cases)] == [RIGHT, RAW, RIGHT]


def test_a_round_that_is_broken_off_leaves_its_table(tmp_path, monkeypatch):
    def broken(kind, *arguments):
        yield outcome(Case("call", "rate", 1, lambda: 1))
        raise RuntimeError("no folder")

    monkeypatch.setattr(attacks.__main__, "attack", broken)
    monkeypatch.setattr("sys.argv", ["attacks", "--kinds", "calls", "--out", str(tmp_path)])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(RuntimeError, match="no folder"):
            attacks.__main__.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    page = (tmp_path / "attack.md").read_text()
    assert "seeds 0 to 0; the last round was broken off." in page
    assert "| calls | 1 | 1 | 1 | 0 | 0 | 0 |" in page


def _raise(message):
    raise cavia.CaviaError(message)
