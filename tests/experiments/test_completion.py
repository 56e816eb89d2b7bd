"""Table 2 and Figure 5: what is compared with the paper, where the pictures come from, who trains again."""

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cavia.cli import main
from cavia.errors import CaviaError
from cavia.experiments.base import Cell, Data, Place, as_json
from cavia.experiments.catalogue import find
from cavia.experiments.completion_summary import METHODS, PAPER_TABLE2, WAVE_BASIS, faces_summary, table2_summary
from cavia.experiments.runner import _adopt, cell_folder
from cavia.tensor_file import read_json, write_json
from cavia.training.step import MetaStep

TINY = {
    "iterations": 2, "tasks_per_batch": 4, "query": 8, "hidden": (6,), "context": 4,
    "inner_steps": 2, "waves": 3, "wave_hidden": (4,), "wave_tasks_per_batch": 3, "first_pictures": 9,
    "validation_pictures": 3, "shots": (5,),
}  # fmt: skip
CELL = Cell({"method": "CAVIA", "order": "random", "known": 5, "seed": 0})
SYNTHETIC = Data(synthetic=True)


def train(name, folder, cell=CELL, data=SYNTHETIC, **changes):
    """The result of one cell of the experiment, with tiny settings."""
    settings = replace(find(name).quick, **TINY | changes)
    return find(name).train(cell, settings, Place(folder, "cpu", lambda progress: None, data))


def test_chunks_bound_memory_and_change_nothing_else(tmp_path):
    for method in METHODS:
        cell = Cell({"method": method, "order": "random", "known": 5, "seed": 0})
        whole, parts = (train("table2", tmp_path / f"{method}-{n}", cell, chunk=n, test_pictures=4) for n in (4, 3))
        assert parts["mse"] == pytest.approx(whole["mse"], rel=1e-4)
        assert parts["validation"] == pytest.approx(whole["validation"], rel=1e-4)


def test_whole_test_pictures_are_scored_and_no_more_than_there_are(tmp_path):
    found = train("table2", tmp_path, test_pictures=1000)
    assert found["data"] == {"source": "synthetic faces, seed 0", "train": 12, "val": 6, "test": 6}
    assert found["mse"].keys() == found["interval"].keys() == {"5"}


# Summaries


def result(method, order="random", mse=0.0371, source="CelebA", **changes):
    return {
        "method": method, "order": order, "known": 10, "seed": 0, "best_iteration": 40, "iterations": 50,
        "seconds": 120.0, "data": {"source": source},
        "mse": {"10": mse, "50": mse}, "interval": {"10": 0.0001, "50": 0.0001},
        "curve": [[20, 0.05, 60.0], [40, 0.04, 120.0]],
    } | changes  # fmt: skip


def table2(results, **changes):
    settings = replace(find("table2").quick, **{"orders": ("random",), "shots": (10, 50)} | changes)
    return table2_summary(settings, results)


def test_the_papers_numbers_stand_beside_real_pictures_only():
    for source, paper in (("CelebA", {"mean": 0.037, "interval": None}), ("synthetic faces, seed 0", None)):
        runs = [result("CAVIA", source=source, known=known) for known in (10, 50)]
        summary = table2(runs, methods=("CAVIA",))
        known, other = summary["tables"][0]["rows"][0]["cells"]
        assert known["paper"] == paper
        assert ("verdict" in known) == (paper is not None)
        assert other["paper"] is None  # the paper has no numbers for 50 pixels
        assert known["ours"] == {"mean": 0.0371, "interval": 0.0001}


def test_each_cell_of_the_paper_is_in_its_place():
    results = [result(method, order) for method, order in PAPER_TABLE2]
    table = table2(results, orders=("random", "ordered"), methods=("CAVIA", "MAML", "CNP"), shots=(10,))["tables"][0]
    shown = [[cell["paper"]["mean"] for cell in row["cells"]] for row in table["rows"]]
    assert shown == [[0.037, 0.053], [0.040, 0.055], [0.039, 0.057]]
    assert table["columns"] == ["10 random", "10 ordered"]


def test_the_wave_basis_stands_beside_the_papers_cavia():
    runs = [result(WAVE_BASIS, mse=mse, known=k) for k, mse in ((10, 0.02), (50, 0.01))]
    summary = table2(runs, methods=(WAVE_BASIS,))
    few, more = summary["tables"][0]["rows"][0]["cells"]
    assert (few["paper"]["mean"], few["verdict"], few["ours"]["mean"]) == (0.037, "better", 0.02)
    assert (more["paper"], more["ours"]["mean"]) == (None, 0.01)
    assert summary["claims"][0]["holds"]
    assert [line["label"] for line in summary["figures"][0]["series"]] == [
        f"{WAVE_BASIS}, {k} pixels" for k in (10, 50)
    ]
    assert not table2([result(WAVE_BASIS, mse=0.04, known=10)], methods=(WAVE_BASIS,))["claims"][0]["holds"]


def test_every_method_has_a_run_for_each_number_of_known_pixels(tmp_path):
    changes = {"methods": ("CAVIA", WAVE_BASIS), "orders": ("random",), "shots": (5, 10)}
    cells = find("table2").cells(replace(find("table2").quick, **TINY | changes), 1)
    assert [(cell["method"], cell["known"]) for cell in cells] == [
        ("CAVIA", 5), ("CAVIA", 10), (WAVE_BASIS, 5), (WAVE_BASIS, 10),
    ]  # fmt: skip
    for cell in cells[1::2]:
        found = train("table2", tmp_path / cell.name, cell, test_pictures=4)
        assert found["mse"].keys() == {"10"}
        assert read_json(tmp_path / cell.name / "config.json")["support"] == 10


def test_a_cell_is_the_mean_over_seeds_and_empty_if_one_diverged():
    seeds = [result("CAVIA", mse=0.03), result("CAVIA", mse=0.05, seed=1)]
    cell = table2(seeds, methods=("CAVIA",))["tables"][0]["rows"][0]["cells"][0]
    assert cell["ours"]["mean"] == pytest.approx(0.04)
    lost = {"method": "CAVIA", "order": "random", "known": 10, "seed": 1, "diverged": "…"}
    assert table2([seeds[0], lost], methods=("CAVIA",))["tables"][0]["rows"][0]["cells"] == [None, None]


@pytest.mark.parametrize(("theirs", "holds"), [(0.0380, True), (0.03705, True), (0.0360, False)])
def test_claims_compare_at_the_papers_precision(theirs, holds):
    claims = table2([result("CAVIA"), result("MAML", mse=theirs)], methods=("CAVIA", "MAML"))["claims"]
    assert [claim["holds"] for claim in claims] == [holds]
    assert "MAML" in claims[0]["claim"]
    assert f"{theirs:.4f}" in claims[0]["evidence"]


def test_faces_are_pictures_of_the_right_size_in_the_order_of_the_paper(tmp_path):
    methods = ("CAVIA", "CNP")
    results = [
        {"method": method, **train("fig5", tmp_path / f"{method}-{known}", Cell(choices), faces=3)}
        for method in methods
        for known in (5, 10)
        for choices in [{**CELL.choices, "method": method, "known": known}]
    ]
    lost = {"method": "MAML", "diverged": "…"}
    figure = faces_summary(replace(find("fig5").quick, shots=(5, 10)), [*results, lost])["figures"][0]
    assert len(figure["panels"]) == 3
    assert figure["columns"] == ["5 pixels", "10 pixels"]
    for panel in figure["panels"]:
        assert [row["label"] for row in panel["rows"]] == ["known pixels", *methods]
        truth = decoded(panel["truth"])
        for k, png in zip((5, 10), panel["rows"][0]["pictures"], strict=True):
            known = decoded(png)
            shown = known.any(-1)
            assert shown.sum() == k
            np.testing.assert_array_equal(known[shown], truth[shown])
        assert all(decoded(png).shape == (32, 32, 3) for row in panel["rows"] for png in row["pictures"])


def decoded(png):
    with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
        return np.array(picture)


def test_faces_that_all_diverged_are_a_claim_that_does_not_hold():
    lost = [{"method": "CAVIA", "diverged": "the loss is nan"}]
    claims = faces_summary(find("fig5").quick, lost)["claims"]
    assert [(claim["holds"], claim["evidence"]) for claim in claims] == [(False, "the loss is nan")]


# Data and settings


@pytest.mark.parametrize("name", ["table2", "fig5"])
def test_without_data_one_line_names_the_files_and_the_way_out(name, tmp_path, capsys):
    order = ["run", name, "--data-root", str(tmp_path / "data"), "--out", str(tmp_path / "run")]
    assert main(order) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for text in (str(tmp_path / "data" / "celeba"), "img_align_celeba/", "list_eval_partition.txt", "mmlab"):
        assert text in error
    assert "--data synthetic" in error
    assert not (tmp_path / "run").exists()


def test_celeba_under_the_data_root_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data" / "celeba" / "img_align_celeba"
    folder.mkdir(parents=True)
    for i in range(9):
        Image.new("RGB", (40, 50), (20 * i, 100, 50)).save(folder / f"{i}.jpg")
    (folder.parent / "list_eval_partition.txt").write_text("".join(f"{i}.jpg {i % 3}\n" for i in range(9)))
    found = train("table2", tmp_path / "cell", data=Data(tmp_path / "data"))
    assert found["data"] == {"source": "CelebA", "train": 3, "val": 3, "test": 3}


def test_more_pixels_than_a_picture_has_are_refused():
    with pytest.raises(CaviaError, match=r"shots must be at most 1024, .* got \(10, 1025\)"):
        find("table2").settings("quick", ["shots=10,1025"])
    with pytest.raises(CaviaError, match="query must be at most 1024"):
        find("fig5").settings("quick", ["query=2000"])


def test_unknown_methods_and_orders_get_the_closest():
    with pytest.raises(CaviaError, match="methods has no 'MAMLL'; did you mean 'MAML'"):
        find("fig5").settings("quick", ["methods=CAVIA,MAMLL"])
    with pytest.raises(CaviaError, match="orders has no 'order'; did you mean 'ordered'"):
        find("table2").settings("quick", ["orders=order"])


# A training that both experiments need is done once


def config(name, **changes):
    """What the runner writes to an experiment's config.json."""
    settings = as_json(replace(find(name).quick, **TINY | changes))
    return {"experiment": name, "budget": "quick", "settings": settings, "data": "synthetic"}


@pytest.fixture
def table2_folder(tmp_path):
    """A folder in which table2 has finished one cell."""
    train("table2", cell_folder(tmp_path / "table2", CELL))
    write_json(tmp_path / "table2" / "config.json", config("table2"))
    return tmp_path / "table2"


def test_a_finished_training_is_taken_over_and_not_repeated(table2_folder, monkeypatch):
    out = table2_folder.with_name("fig5")
    _adopt(out, config("fig5"), CELL, find("fig5").chooses_cells)

    def no_step(self, batch):
        raise AssertionError("it trains again")

    monkeypatch.setattr(MetaStep, "__call__", no_step)
    found = train("fig5", cell_folder(out, CELL))
    last = json.loads((cell_folder(table2_folder, CELL) / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["validation"] == last["validation"]
    assert len(found["pictures"]["truth"]) == find("fig5").quick.faces


def test_which_other_cells_there_are_does_not_matter(table2_folder):
    out = table2_folder.with_name("table2-again")
    _adopt(out, config("table2", methods=("CAVIA",), orders=("random",)), CELL, find("table2").chooses_cells)
    assert (cell_folder(out, CELL) / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_training_by_an_earlier_version_was_in_float32(table2_folder, precision):
    earlier = config("table2")
    del earlier["settings"]["precision"]
    write_json(table2_folder / "config.json", earlier)
    out = table2_folder.with_name("fig5")
    _adopt(out, config("fig5", precision=precision), CELL, find("fig5").chooses_cells)
    assert out.exists() == (precision == "float32")


def test_only_the_wave_basis_stays_in_float32(tmp_path):
    wave = Cell({"method": WAVE_BASIS, "order": "random", "known": 5, "seed": 0})
    for cell, recorded in ((CELL, "bf16"), (wave, None)):
        train("table2", tmp_path / cell.name, cell, precision="bf16", test_pictures=4)
        assert json.loads((tmp_path / cell.name / "config.json").read_text()).get("precision") == recorded


@pytest.mark.parametrize("change", [{"iterations": 3}, {"hidden": (7,)}, {"cavia_lr": 0.5}, {"precision": "bf16"}])
def test_a_training_with_other_settings_is_not_taken_over(table2_folder, change):
    out = table2_folder.with_name("fig5")
    _adopt(out, config("fig5", **change), CELL, find("fig5").chooses_cells)
    assert not out.exists()


def test_a_training_on_other_data_is_not_taken_over(table2_folder):
    out = table2_folder.with_name("fig5")
    real = {key: value for key, value in config("fig5").items() if key != "data"}
    _adopt(out, real, CELL, find("fig5").chooses_cells)
    assert not out.exists()


def test_an_unfinished_training_is_not_taken_over(table2_folder):
    (cell_folder(table2_folder, CELL) / "model.cavia").unlink()
    out = table2_folder.with_name("fig5")
    _adopt(out, config("fig5"), CELL, find("fig5").chooses_cells)
    assert not out.exists()


def test_a_training_under_way_is_left_alone(table2_folder):
    mine = cell_folder(table2_folder.with_name("fig5"), CELL)
    mine.mkdir(parents=True)
    (mine / "config.json").write_text("mine")
    _adopt(table2_folder.with_name("fig5"), config("fig5"), CELL, find("fig5").chooses_cells)
    assert [path.name for path in mine.iterdir()] == ["config.json"]
    assert (mine / "config.json").read_text() == "mine"
