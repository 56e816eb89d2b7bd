"""`cavia adapt` and `cavia predict` over folders: the same contexts and predictions as at once, in bounded memory."""

import subprocess
import sys

import pyarrow.parquet as parquet
import pytest
import torch

import cavia
from cavia.cli import main
from cavia.streaming import models
from cavia.tables.fitting import fit_table
from cavia.tables.tasks import Tasks
from tests.streaming.data import write_lists, write_rows


@pytest.fixture(autouse=True)
def as_it_is(monkeypatch):
    """No compilation, which takes seconds."""
    monkeypatch.setattr(models, "_quick", lambda learner: learner)


@pytest.fixture
def learner(tmp_path):
    torch.manual_seed(0)
    made = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), loss="mse")
    made.save(tmp_path / "sine.cavia")
    return made


@pytest.fixture
def table_model(tmp_path):
    table = write_rows(tmp_path / "train", 60, files=1)
    fit_table(Tasks.from_table(table, "user", "y", support=2), hidden=(4,), iterations=2).model.save(
        tmp_path / "table.cavia"
    )


def test_lists_of_points_are_adapted_to(tmp_path, learner, capsys):
    x, y = write_lists(tmp_path / "data", 23)
    order = ["adapt", str(tmp_path / "sine.cavia"), str(tmp_path / "data"), "--store", str(tmp_path / "store")]
    assert main(order) == 0
    assert "23 tasks, 23 rows adapted to" in capsys.readouterr().out
    with cavia.ContextStore(tmp_path / "store", learner) as store:
        assert store.ids == list(range(23))
        torch.testing.assert_close(store.get(range(23)).context, learner.adapt(x, y).context)
    assert main(order) == 0  # done again, it is as done once
    assert "which holds 23 contexts" in capsys.readouterr().out


def test_tasks_of_unequal_size_are_padded(tmp_path, learner):
    import pyarrow as pa

    points = {"a": 3, "b": 1, "c": 7, "d": 3}
    x = {name: torch.rand(count, 1) for name, count in points.items()}
    columns = {
        "task": list(points),
        "x": [one[:, 0].tolist() for one in x.values()],
        "y": [one[:, 0].sin().tolist() for one in x.values()],
    }
    parquet.write_table(pa.table(columns), tmp_path / "data.parquet")
    model, data = str(tmp_path / "sine.cavia"), str(tmp_path / "data.parquet")
    assert main(["adapt", model, data, "--store", str(tmp_path / "store")]) == 0
    assert main(["predict", model, data, "--contexts", str(tmp_path / "store"), "--out", str(tmp_path / "out")]) == 0
    predicted = parquet.read_table(tmp_path / "out").to_pydict()
    with cavia.ContextStore(tmp_path / "store") as store:
        for row, (name, own) in enumerate(x.items()):
            adapted = learner.adapt(own[None], own[None].sin())
            torch.testing.assert_close(store.get([name]).context, adapted.context)
            expected = learner.predict(own[None], adapted)[0]
            torch.testing.assert_close(torch.tensor(predicted["prediction"][row]), expected)


def test_a_table_in_a_folder_is_as_the_table_at_once(tmp_path, table_model, capsys):
    table = write_rows(tmp_path / "data", 9)
    parquet.write_table(table, tmp_path / "whole.parquet")
    model, store = str(tmp_path / "table.cavia"), str(tmp_path / "store")
    assert main(["adapt", model, str(tmp_path / "data"), "--store", store]) == 0
    assert main(["adapt", model, str(tmp_path / "whole.parquet"), "--out", store + " at once"]) == 0
    with cavia.ContextStore(store) as streamed, cavia.ContextStore(store + " at once") as whole:
        assert sorted(streamed.ids) == sorted(whole.ids)
        torch.testing.assert_close(streamed.get(whole.ids).context, whole.get(whole.ids).context)
    order = ["predict", model, str(tmp_path / "data"), "--contexts", store, "--out", str(tmp_path / "out")]
    assert main(order) == main(order) == 0
    written = parquet.read_table(tmp_path / "out")
    assert written.column("x").to_pylist() == table.column("x").to_pylist()
    assert len(written.column("prediction")) == 45
    assert main([*order, "--unknown", "start"]) == 2
    assert "holds predictions of another model" in capsys.readouterr().err


def test_intervals_are_for_models_of_tables(tmp_path, learner, table_model, capsys):
    write_rows(tmp_path / "rows", 9)
    write_lists(tmp_path / "lists", 9)
    for model, data, code in (("table", "rows", 0), ("sine", "lists", 2)):
        store, files = str(tmp_path / model), [str(tmp_path / f"{model}.cavia"), str(tmp_path / data)]
        assert main(["adapt", *files, "--store", store]) == 0
        order = ["predict", *files, "--contexts", store, "--out", str(tmp_path / f"{model} out"), "--interval", "0.9"]
        assert main(order) == code
    assert "intervals are for models by `cavia fit`" in capsys.readouterr().err
    written = parquet.read_table(tmp_path / "table out").to_pydict()
    assert all(low <= high for low, high in zip(written["low"], written["high"], strict=True))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--on", "ray"], "a store in a file is for one machine"),
        (["--on", "mpi"], "a Ray cluster is ray, or ray://host:10001, got 'mpi'"),
        (["--on", "ray://nowhere"], "a Ray cluster is ray, or ray://host:10001, got 'ray://nowhere'"),
    ],
)
def test_where_work_cannot_be_done_is_one_line(tmp_path, learner, capsys, flags, message):
    write_lists(tmp_path / "data", 3)
    assert main(["adapt", str(tmp_path / "sine.cavia"), str(tmp_path / "data"), *flags]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("out", ["data", "data/predicted", "data/../data"])
def test_predictions_are_not_written_among_the_data(tmp_path, table_model, capsys, out):
    write_rows(tmp_path / "data", 3)
    model, data, store = (str(tmp_path / name) for name in ("table.cavia", "data", "contexts"))
    assert main(["adapt", model, data, "--store", store]) == 0
    before = sorted((tmp_path / "data").rglob("*"))
    assert main(["predict", model, data, "--contexts", store, "--out", str(tmp_path / out)]) == 2
    assert "is among the data in" in capsys.readouterr().err
    assert sorted((tmp_path / "data").rglob("*")) == before


@pytest.mark.parametrize("unknown", ["refuse", "start"])
def test_tasks_without_a_context(tmp_path, learner, unknown, capsys):
    write_lists(tmp_path / "known", 3, files=1)
    x, _ = write_lists(tmp_path / "data", 5, files=1)
    model, store = str(tmp_path / "sine.cavia"), str(tmp_path / "store")
    main(["adapt", model, str(tmp_path / "known"), "--store", store])
    order = ["predict", model, str(tmp_path / "data"), "--contexts", store, "--out", str(tmp_path / "out")]
    assert main([*order, "--unknown", unknown]) == (2 if unknown == "refuse" else 0)
    if unknown == "refuse":
        assert "2 of 2 tasks have no context: 3" in capsys.readouterr().err
    else:
        written = torch.tensor(parquet.read_table(tmp_path / "out").column("prediction").to_pylist())
        torch.testing.assert_close(written[4:], learner.predict(x[4:], learner.start(1)))


MEASURE = """if True:
    import sys
    from pathlib import Path
    from cavia.cli import main
    from cavia.streaming import models
    models._quick = lambda learner: learner
    assert main(["adapt", *sys.argv[1:3], "--store", sys.argv[3]]) == 0
    print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])"""


@pytest.mark.check
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_does_not_grow_with_the_number_of_row_groups(tmp_path, learner):
    peaks = []
    for groups in (3, 60):
        data = tmp_path / f"data{groups}"
        write_lists(data, 1000 * groups, files=1, rows=1000, points=50)
        order = [sys.executable, "-c", MEASURE, str(tmp_path / "sine.cavia"), str(data), str(tmp_path / f"s{groups}")]
        said = subprocess.run(order, check=True, capture_output=True, text=True).stdout
        peaks.append(int(said.split()[-1]) / 1024)
    assert peaks[1] < peaks[0] + 40, peaks  # MB; all points are 60 MB as lists, and several times that on the way
