"""Files of table models: damaged ones are refused in one line, and `cavia.load` says what they are."""

import copy
import random

import pytest
import torch

import cavia
from cavia.learners.saving import save
from cavia.tables.encoding import Encoding
from cavia.tables.model import TableModel, load_table_model
from cavia.tables.reading import read_table

TABLE = {
    "u": list("aabbcc"),
    "x": [1, 2, 3, 4, 5, None],
    "c": list("rgrgrb"),
    "d": ["2024-01-01", "2024-01-02 07:30", None, "2024-01-01", "2024-01-01", "2024-01-01"],
    "y": [1.0, 2, 3, 4, 5, 6],
}


@pytest.fixture(scope="module")
def model():
    family = cavia.Tasks.from_table(TABLE, "u", "y", splits={"train": list("abc")})
    network = cavia.MLP(family.encoding.width, 1, hidden=(4,), context=2)
    return TableModel(cavia.CAVIA(network, "mse"), family.encoding)


def test_a_model_comes_back(model, tmp_path):
    model.save(tmp_path / "m.cavia")
    again = load_table_model(tmp_path / "m.cavia")
    assert again.encoding == model.encoding
    assert again.learner.version == model.learner.version


def test_load_says_what_a_table_model_needs(model, tmp_path):
    model.save(tmp_path / "m.cavia")
    with pytest.raises(cavia.CaviaError, match=r"is the model of a table.*`cavia adapt` and `cavia predict`"):
        cavia.load(tmp_path / "m.cavia")


def damaged(value, generator):
    """The JSON value with one of its parts replaced, dropped or doubled."""
    value = copy.deepcopy(value)
    places = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(value)
    node, key = generator.choice(places)
    what = generator.choice(
        [None, True, -1, 0, 1e308, float("nan"), "", "x", [], {}, [None], ["a", "a"], "drop", "double"]
    )
    if what == "drop":
        del node[key]
    elif what == "double" and isinstance(node, list):
        node.append(node[key])
    else:
        node[key] = what
    return value


def test_damaged_encodings_are_refused_or_mean_something(model, tmp_path):
    right, generator, refused = model.encoding.as_json(), random.Random(0), 0
    for _ in range(300):
        try:
            encoding = Encoding.from_json(damaged(right, generator))
            assert encoding.encode_inputs(read_table(TABLE)).shape == (6, encoding.width)
            encoding.encode_targets(read_table(TABLE))
        except cavia.CaviaError:
            refused += 1
    assert refused > 200
    for wrong in (None, [], {}, {"task": "u"}, right | {"inputs": right["inputs"][:1]}, right | {"targets": []}):
        save(model.learner, tmp_path / "wrong.cavia", {"table": wrong})
        with pytest.raises(cavia.CaviaError, match=r"wrong.cavia does not describe a table: .+"):
            load_table_model(tmp_path / "wrong.cavia")


def test_a_prediction_that_is_not_finite_is_an_error(model, tmp_path):
    wrong = copy.deepcopy(model)
    with torch.no_grad():
        wrong.learner.model.layers[-1].bias.fill_(float("inf"))
    with (
        cavia.ContextStore(tmp_path / "s", wrong.learner) as store,
        pytest.raises(cavia.CaviaError, match=r"row 0 \(counting from 0\): the prediction is not finite"),
    ):
        wrong.predict(TABLE, store, unknown="start")
    with pytest.raises(cavia.CaviaError, match="the context of task 'a' is not finite"):
        wrong.adapt(TABLE)
