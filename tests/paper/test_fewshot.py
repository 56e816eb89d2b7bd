"""Table 3 and Omniglot: what is compared with the paper, every method, the probe of the context, missing data."""

from dataclasses import replace

import pytest

from cavia.cli import main
from cavia.errors import CaviaError
from cavia.experiments import fewshot
from cavia.paper.experiment import Cell, Data, Place
from cavia.paper.catalogue import find
from cavia.experiments.fewshot_summary import PAPER_TABLE3, QUOTED, omniglot_summary, table3_summary
from cavia.paper.checking import first_problem
from tests.paper.report.results import result as whole_result

TINY = {
    "iterations": 2, "every": 1, "filters": (3,), "ways": (2,), "shots": (1,), "queries": 2, "test_tasks": 3,
    "validation_tasks": 2, "context": 4,
}  # fmt: skip
SYNTHETIC = Data(synthetic=True)


@pytest.mark.parametrize("method", fewshot.METHODS)
def test_every_method_trains_and_is_measured(method, tmp_path):
    experiment = find("omniglot")
    cell = Cell({"method": method, "filters": 3, "ways": 2, "shots": 2, "seed": 0})
    found = experiment.train(
        cell, replace(experiment.quick, **TINY), Place(tmp_path, "cpu", lambda progress: None, SYNTHETIC)
    )
    assert 0 <= found["accuracy"] <= 1
    assert found["iterations"] == 2
    assert [iteration for iteration, _, _ in found["curve"]] == [1, 2]
    assert ("agreement" in found) == (method in ("CAVIA", "CAVIA (first order)"))


def test_the_probe_adapts_to_each_task_from_several_sets_of_its_pictures(few_glyphs):
    family = fewshot.episodes(fewshot.OMNIGLOT, SYNTHETIC, ways=3, shots=2, queries=2)
    learner = fewshot.METHODS["CAVIA"](
        lambda **changes: fewshot.ConvNet(**{"ways": 3, "filters": 4, "image": 28, "channels": 1} | changes),
        find("omniglot").quick,
    )
    found = fewshot.probe(learner, family, chunk=5, tasks=4)
    assert len(found["plane"]) == len(found["task"]) == 4 * 3  # 8 drawings: one support set and three others of 2
    assert found["chance"] == pytest.approx(2 / 11)
    assert 0 <= found["agreement"] <= 1
    assert fewshot.probe(learner, family, chunk=1, tasks=4)["agreement"] == pytest.approx(found["agreement"])
    family.shots = 4  # of 8: nothing is left to adapt to a second time
    assert fewshot.probe(learner, family, chunk=5) == {}


def result(method, shots=1, accuracy=0.4724, filters=32, source="Mini-ImageNet", **changes):
    return {
        "method": method, "filters": filters, "ways": 5, "shots": shots, "seed": 0, "accuracy": accuracy,
        "interval": 0.0065, "iterations": 100, "best_iteration": 50, "seconds": 200.0,
        "curve": [[50, 0.3, 90.0], [100, 0.4, 200.0]],
        "data": {"source": source},
    } | changes  # fmt: skip


def table3(results, **changes):
    return table3_summary(replace(find("table3").full, **changes), results)


def test_the_papers_numbers_stand_beside_the_same_method_and_width():
    summary = table3(
        [result("CAVIA"), result("CAVIA", filters=128), result("ANIL")],
        methods=("CAVIA", "ANIL"), filters=(32, 128), shots=(1,),
    )  # fmt: skip
    rows = {row["label"]: row["cells"][0] for row in summary["tables"][0]["rows"]}
    assert rows["CAVIA (32)"]["paper"] == {"mean": 47.24, "interval": 0.65}
    assert rows["CAVIA (32)"]["verdict"] == "within"
    assert rows["CAVIA (128)"]["verdict"] == "short"
    assert rows["ANIL (32)"]["paper"] is None
    assert rows["ANIL (128)"] is None  # not trained
    assert rows["VERSA, quoted"] == {"ours": None, "paper": {"mean": 53.40, "interval": 1.82}}
    assert "60,000 would take 33.3 h" in rows["CAVIA (32)"]["note"]
    assert first_problem(whole_result("table3", **summary)) is None


def test_drawn_glyphs_are_compared_with_nothing():
    summary = table3([result("CAVIA", source="synthetic glyphs, seed 0")], methods=("CAVIA",), shots=(1,))
    assert [row["label"] for row in summary["tables"][0]["rows"]] == ["CAVIA (32)"]
    assert summary["tables"][0]["rows"][0]["cells"][0]["paper"] is None
    assert all("paper" not in series["label"] for series in summary["figures"][0]["series"])


def test_a_method_that_diverged_leaves_a_gap_and_no_claim():
    lost = {"method": "MAML", "filters": 32, "ways": 5, "shots": 1, "seed": 0, "diverged": "the loss is nan"}
    summary = table3([result("CAVIA"), lost], methods=("CAVIA", "MAML"), shots=(1,))
    assert summary["tables"][0]["rows"][1]["cells"] == [None]
    assert not summary["claims"]


def test_claims_tell_how_it_came_out():
    summary = table3(
        [result("CAVIA"), result("MAML", accuracy=0.5), result("CAVIA (first order)", accuracy=0.4)],
        methods=("CAVIA", "MAML", "CAVIA (first order)"), shots=(1,),
    )  # fmt: skip
    claims = {claim["claim"]: claim for claim in summary["claims"]}
    assert not claims["CAVIA is at least as good as MAML, up to the intervals."]["holds"]
    assert claims["CAVIA is at least as good as CAVIA (first order), up to the intervals."]["holds"]
    wider = table3(
        [result("CAVIA"), result("CAVIA", filters=128, accuracy=0.4)], methods=("CAVIA",), filters=(32, 128), shots=(1,)
    )
    assert not next(claim for claim in wider["claims"] if "more filters" in claim["claim"])["holds"]


def test_omniglot_says_whether_every_method_got_above_97_percent():
    settings = replace(find("omniglot").full, methods=("CAVIA",), ways=(5,), shots=(1,))
    for accuracy, holds in ((0.98, True), (0.96, False)):
        claim = omniglot_summary(settings, [result("CAVIA", accuracy=accuracy, source="Omniglot")])["claims"][0]
        assert claim["holds"] is holds
    seeds = [result("CAVIA", accuracy=share, source="Omniglot") | {"seed": n} for n, share in enumerate((0.9, 0.98))]
    assert not omniglot_summary(settings, seeds)["claims"][0]["holds"]
    lost = {"method": "MAML", "filters": 32, "ways": 5, "shots": 1, "seed": 0, "diverged": "the loss is nan"}
    claim = omniglot_summary(settings, [result("CAVIA", accuracy=0.98, source="Omniglot"), lost])["claims"][0]
    assert not claim["holds"]
    assert "MAML (32): diverged" in claim["evidence"]


def test_the_papers_table_is_complete():
    assert len(PAPER_TABLE3) + len(QUOTED) == 13
    assert all(known.keys() <= {1, 5} for known in (*PAPER_TABLE3.values(), *QUOTED.values()))


@pytest.mark.parametrize(
    ("name", "expected"), [("table3", "put images/ and train.csv"), ("omniglot", "put images_background/")]
)
def test_without_data_one_line_says_what_to_put_where(name, expected, tmp_path, capsys):
    assert main(["run", name, "--data-root", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert expected in message
    assert "--data synthetic" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("MAMMAL",)}, "methods has no 'MAMMAL'; did you mean 'MAML'"),
        ({"norm": "batch"}, "norm has no 'batch'"),
        ({"filters": (0,)}, "filters must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(CaviaError, match=message):
        replace(find("table3").quick, **changes)


@pytest.mark.parametrize("method", fewshot.METHODS)
def test_every_method_can_be_chosen_on_the_command_line(method):
    assert find("table3").settings("quick", [f"methods=CAVIA, {method}"]).methods == ("CAVIA", method)


def test_filters_is_short_for_a_setting(tmp_path, capsys):
    assert main(["run", "table3", "--filters", "none", "--out", str(tmp_path)]) == 2
    assert "filters must be a whole number, got 'none'" in capsys.readouterr().err
    assert main(["run", "table1", "--filters", "32", "--out", str(tmp_path)]) == 2
    assert "table1 has no setting 'filters'" in capsys.readouterr().err
