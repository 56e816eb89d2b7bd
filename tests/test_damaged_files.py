"""Files whose checksums fit, but which nobody wrote: each loads as what it says, or is one line."""

import json
import random
import shutil
import sqlite3
from functools import partial
from pathlib import Path

import pytest
import torch

import cavia
from cavia.cli import main
from cavia.tensor_file import read_tensors
from tests.mutations import VALUES, mutated_file, mutated_json
from tests.training.runs import lines, make, train

OLD = Path(__file__).parent / "fixtures" / "v0_1"
MODELS = sorted(path.name for path in OLD.glob("*.cavia"))
MUTATIONS = 40


def refused(action):
    """What the action returns, or None if it was refused, as everything must be that fails."""
    try:
        return action()
    except cavia.CaviaError as error:
        message = str(error)
    assert message
    assert "\n" not in message
    message.encode()
    return None


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_what_its_file_says_or_is_refused(name, tmp_path):
    tensors, description = read_tensors(OLD / name)
    chance, loaded = random.Random(name), 0
    for number in range(MUTATIONS):
        path = tmp_path / f"{number}.cavia"
        mutated_file(path, tensors, description, chance)
        module = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        given = {"module": module} if name == "conditioned.cavia" else {}
        opened = refused(partial(cavia.load, path, **given))
        if opened is not None:
            loaded += 1
            weights = opened.state_dict()
            kept, _ = read_tensors(path)
            assert weights.keys() == kept.keys()
            assert all(torch.equal(weights[key], value) for key, value in kept.items())
            assert isinstance(opened.version, str)
    assert loaded < MUTATIONS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 20 of 30 iterations; and the weights and lines of all 30."""
    folder = tmp_path_factory.mktemp("run")
    train(make(), 20, folder / "begun")
    whole = make()
    train(whole, 30, folder / "whole")
    return folder / "begun", whole.state_dict(), lines(folder / "whole")


def resumed(folder):
    learner = make()
    train(learner, 30, folder)
    return learner.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_run_goes_on_from_a_checkpoint_or_refuses_it(run, seed, tmp_path):
    tensors, description = read_tensors(run[0] / "checkpoint.safetensors")
    chance = random.Random(seed)
    for number in range(MUTATIONS):
        folder = Path(shutil.copytree(run[0], tmp_path / str(number)))
        mutated_file(folder / "checkpoint.safetensors", tensors, description, chance)
        if refused(lambda folder=folder: resumed(folder)):
            kept, _ = read_tensors(folder / "checkpoint.safetensors")
            assert all(value.isfinite().all() for name, value in kept.items() if name.startswith("learner/"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_run_goes_on_to_the_bit_whatever_its_configuration_says_or_refuses_it(run, seed, tmp_path):
    config = json.loads((run[0] / "config.json").read_text())
    chance = random.Random(seed)
    for number in range(MUTATIONS):
        folder = Path(shutil.copytree(run[0], tmp_path / str(number)))
        (folder / "config.json").write_text(mutated_json(config, chance))
        weights = refused(lambda folder=folder: resumed(folder))
        if weights:
            assert all(torch.equal(weights[name], value) for name, value in run[1].items())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_line_of_metrics_is_read_or_refused(run, seed, tmp_path):
    text = (run[0] / "metrics.jsonl").read_text().splitlines()
    chance = random.Random(seed)
    for number in range(MUTATIONS):
        folder = Path(shutil.copytree(run[0], tmp_path / str(number)))
        changed = list(text)
        place = chance.randrange(len(text))
        changed[place] = mutated_json(json.loads(text[place]), chance)
        (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in changed))
        opened = refused(cavia.RunFolder(folder).read_metrics)
        assert opened is None or [line["iteration"] for line in opened]
        weights = refused(lambda folder=folder: resumed(folder))
        if weights:
            assert all(torch.equal(weights[name], value) for name, value in run[1].items())


@pytest.mark.slow
def test_a_configuration_beside_a_model_is_one_line_at_the_command_line(tmp_path, capsys):
    (cell,) = (OLD / "table1" / "cells").glob("CAVIA-*")
    config = json.loads((cell / "config.json").read_text())
    chance = random.Random(0)
    for number in range(MUTATIONS):
        folder = Path(shutil.copytree(cell, tmp_path / str(number)))
        (folder / "config.json").write_text(mutated_json(config, chance))
        assert main(["evaluate", str(folder), "--tasks", "2"]) in (0, 2)
        error = capsys.readouterr().err
        assert "Traceback" not in error


@pytest.mark.parametrize("kind", ["int", "str"])
def test_a_store_gives_what_was_put_or_refuses(kind, tmp_path):
    ids = list(range(5)) if kind == "int" else list("abcde")
    contexts, chance = torch.randn(5, 3), random.Random(kind)
    with cavia.ContextStore(tmp_path / "whole", "version") as store:
        store.put(ids, contexts)
    orders = (
        "UPDATE about SET value = ? WHERE name = 'kind'", "UPDATE about SET value = ? WHERE name = 'size'",
        "UPDATE about SET value = ? WHERE name = 'dtype'", "UPDATE about SET value = ? WHERE name = 'version'",
        "UPDATE OR IGNORE about SET name = ? WHERE name = 'size'", "UPDATE OR IGNORE contexts SET context = ?",
        "UPDATE OR IGNORE contexts SET id = ? WHERE rowid = 2", "UPDATE contexts SET checksum = ?",
    )  # fmt: skip
    values = [
        one for one in VALUES if isinstance(one, str | float | None | bytes) or (type(one) is int and one < 2**63)
    ]
    for number in range(MUTATIONS):
        path = Path(shutil.copy(tmp_path / "whole", tmp_path / str(number)))
        connection = sqlite3.connect(path)
        try:
            connection.execute(chance.choice(orders), (chance.choice(values),))
            connection.commit()
        except sqlite3.Error:  # SQLite itself refuses it
            continue
        finally:
            connection.close()
        store = refused(lambda path=path: cavia.ContextStore(path))
        if store is None:
            continue
        with store:
            opened = refused(lambda store=store: store.get(ids).context)
            assert opened is None or torch.equal(opened, contexts)
            everything = refused(lambda store=store: list(store.batches()))
            assert everything is None or (everything[0][0] == ids and torch.equal(everything[0][1], contexts))
            refused(lambda store=store: store.nearest(contexts, 2))
            refused(lambda store=store: store.put(ids, contexts))
            refused(lambda store=store: store.delete(ids[:1]))
