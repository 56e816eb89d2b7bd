"""The plan of the published results."""

from pathlib import Path

import pytest

from cavia.errors import CaviaError
from cavia.paper.catalogue import CATALOGUE
from cavia.paper.experiment import Data
from cavia.paper.plan import read_plan

PLAN = Path(__file__).parents[2] / "results" / "plan.toml"
LATER = ["dynamics", "modes", "sine_steps", "sine_methods", "omniglot_methods", "embeddings"]


def test_the_plan_has_what_is_beyond_the_paper_after_what_is_of_it():
    planned = [order.experiment for order in read_plan(PLAN, Path("runs"), data=Data())]
    beyond = [name for name in planned if CATALOGUE[name].beyond]
    assert beyond[: len(LATER)] == LATER
    assert planned[-len(beyond) :] == beyond


def test_the_network_of_the_embeddings_is_trained_before_them():
    orders = read_plan(PLAN, Path("runs"), data=Data())
    folders = [str(order.folder(cell) / "model.cavia") for order in orders for cell in order.cells]
    (embeddings,) = (order for order in orders if order.experiment == "embeddings")
    assert embeddings.settings.network in folders
    assert folders.index(embeddings.settings.network) < folders.index(
        str(embeddings.folder(embeddings.cells[0]) / "model.cavia")
    )


def test_a_plan_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(CaviaError, match=r"there is no plan .*plan\.toml; call this in a clone .* --plan"):
        read_plan(tmp_path / "plan.toml", Path("runs"))
