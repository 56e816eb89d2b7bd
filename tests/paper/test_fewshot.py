"""Table 3 and Omniglot: what is compared with the paper, every method, the probe of the context, missing data."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import cavia
from cavia.cli import main
from cavia.errors import CaviaError
from cavia.learners.gradient import CAVIA
from cavia.models.convnet import ConvNet
from cavia.paper import reproduce
from cavia.paper.catalogue import find
from cavia.paper.checking import first_problem
from cavia.paper.experiment import Cell
from cavia.paper.fewshot import embeddings, systems
from cavia.paper.fewshot.summary import omniglot_summary, table3_summary
from cavia.paper.fewshot.training import COMPARED, SYSTEMS, probe, tasks
from cavia.paper.published import QUOTED, TABLE3
from cavia.paper.running.orders import Order
from cavia.pictures.datasets import MINI_IMAGENET, OMNIGLOT
from tests.paper.cells import SYNTHETIC, claim, claims, lost, noise, result, train
from tests.paper.report.results import result as whole_result

TINY = {
    "iterations": 2, "every": 1, "filters": (3,), "ways": (2,), "shots": (1,), "queries": 2, "test_tasks": 3,
    "validation_tasks": 2, "context": 4,
}  # fmt: skip


# Training and measuring


@pytest.mark.parametrize("method", [*COMPARED, *SYSTEMS])
def test_every_method_trains_and_is_measured(method, tmp_path):
    cell = Cell({"method": method, "filters": 3, "ways": 2, "shots": 2, "seed": 0})
    outcome = train("omniglot", tmp_path, cell, **TINY)
    assert np.shape(outcome.scores["accuracy"]) == (1, 3)
    assert all(0 <= score <= 1 for score in outcome.scores["accuracy"][0])
    assert outcome.iterations == 2
    assert [iteration for iteration, _, _ in outcome.curve] == [1, 2]
    assert ("agreement" in outcome.probes) == (method in ("CAVIA", "CAVIA (first order)"))


def test_tasks_are_of_the_experiments_data_set_at_the_size_that_is_set():
    cell = Cell({"method": "CAVIA", "filters": 3, "ways": 3, "shots": 2, "seed": 0})
    for data_set, channels, turned in ((OMNIGLOT, 1, True), (MINI_IMAGENET, 3, False)):
        family = tasks(data_set, replace(find("table3").sets["quick"], image=42, queries=2), cell, SYNTHETIC)
        assert (family.size, family.channels, family.settings["rotations"]) == (42, channels, turned)
        assert (family.ways, family.shots) == (3, 2)


def test_the_probe_adapts_to_each_task_from_several_sets_of_its_pictures():
    cell = Cell({"method": "CAVIA", "filters": 4, "ways": 3, "shots": 2, "seed": 0})
    family = tasks(OMNIGLOT, replace(find("omniglot").sets["quick"], queries=2), cell, SYNTHETIC)
    learner = CAVIA(ConvNet(ways=3, filters=4, image=28, channels=1), "cross_entropy", inner_lr=0.1, inner_steps=2)
    probes = probe(learner, family, chunk=5, tasks=4)
    assert len(probes["plane"]) == len(probes["task"]) == 4 * 3  # 8 drawings: one support set and three others of 2
    assert probes["chance"] == pytest.approx(2 / 11)
    assert 0 <= probes["agreement"] <= 1
    assert probe(learner, family, chunk=1, tasks=4)["agreement"] == pytest.approx(probes["agreement"])
    family.shots = 4  # of 8: nothing is left to adapt to a second time
    assert probe(learner, family, chunk=5) == {}


# Embeddings


def embedded(network, method="LEO"):
    cell = Cell({"method": method, "shots": 1, "inner_lr": 0.1, "seed": 0})
    chosen = replace(find("embeddings").sets["quick"], network=str(network), ways=3, queries=2, image=28)
    return embeddings.tasks(chosen, cell, SYNTHETIC), chosen, cell


def test_embeddings_are_those_of_the_network_that_is_named(tmp_path):
    network = cavia.ProtoNets(ConvNet(0, 4, 28, 3, context=0), ways=3)
    network.save(tmp_path / "network.cavia")
    family, chosen, cell = embedded(tmp_path / "network.cavia")
    batch = family.sample(2, None, None, torch.Generator().manual_seed(0))
    pictures = family.episodes.sample(2, None, None, torch.Generator().manual_seed(0))
    together = network.embed(torch.cat([pictures.support_x, pictures.query_x], 1))
    torch.testing.assert_close(torch.cat([batch.support_x, batch.query_x], 1), together, rtol=1e-4, atol=1e-5)
    assert embeddings.learner(chosen, cell, family)(batch).shape == (2,)
    assert family.settings["network"] == network.version
    cavia.check_tasks(family, support=3, query=6)


def test_a_network_that_is_not_there_or_embeds_nothing_is_named(tmp_path):
    with pytest.raises(CaviaError, match=r"there is no trained network .*: train it by `cavia run table3 --tuned"):
        embedded(tmp_path / "none.cavia")
    cavia.CAVIA(cavia.MLP(1, 1), "mse").save(tmp_path / "other.cavia")
    with pytest.raises(CaviaError, match="network must be a learner that embeds, such as ProtoNets, got CAVIA"):
        embedded(tmp_path / "other.cavia")


@pytest.mark.parametrize(("gap", "holds"), [(0.05, True), (0.0, False)])
def test_cavia_must_be_above_leo_on_the_same_embeddings(gap, holds):
    drawn = np.random.default_rng(0).normal(size=200)
    results = [
        result(
            {"method": method, "shots": 1, "inner_lr": 0.1, "seed": 0},
            {"accuracy": [(0.5 + more + 0.01 * drawn).tolist()]},
        )
        for method, more in (("CAVIA", gap), ("LEO", 0.0))
    ]
    assert claims(embeddings.summarise(find("embeddings").sets["quick"], results)) == [holds]


def test_near_chance_nothing_is_concluded_from_embeddings():
    results = [
        result({"method": method, "shots": 1, "inner_lr": 0.1}, {"accuracy": [noise(mean, scale=0.01)]})
        for method, mean in (("CAVIA", 0.4), ("LEO", 0.24))
    ]
    assert claims(embeddings.summarise(find("embeddings").sets["quick"], results)) == []


def test_a_plan_may_train_the_network_before(tmp_path, monkeypatch):
    ordered = []
    monkeypatch.setattr(reproduce, "run_cells", lambda work, *_: ordered.extend(work))
    changes = {"network": str(tmp_path / "none.cavia"), "image": 28, "ways": 3, "queries": 2}
    order = Order("embeddings", "quick", tmp_path / "runs", changes, data=SYNTHETIC)
    assert not reproduce.Reproduction([order], jobs=1).run()
    assert len(ordered) == len(order.cells)


# Every method for the same time


def test_the_rate_that_validates_best_is_shown():
    chosen = {"method": "MAML", "filters": 32, "ways": 5, "shots": 1, "seed": 0}
    results = [
        result(chosen | {"scale": scale}, {"accuracy": [[accuracy] * 4]}, validation=validation)
        for scale, accuracy, validation in ((1.0, 0.9, 0.8), (4.0, 0.8, 0.9))
    ]
    summary = systems.summarise(replace(find("omniglot_methods").sets["quick"], methods=("MAML", "LEO")), results)
    (shown,), (missing,) = (row["cells"] for row in summary["tables"][0]["rows"])
    assert shown["ours"]["mean"] == pytest.approx(80)
    assert "inner rate × 4" in shown["note"]
    assert missing is None


# Table 3


def measured(method, accuracy=0.4724, filters=32, shots=1, source="Mini-ImageNet", seed=0, **probes):
    """On 400 tasks, which are .1 apart: the interval is about a point."""
    drawn = np.random.default_rng(0).normal(size=400)
    scores = accuracy + 0.1 * (drawn - drawn.mean())
    choices = {"method": method, "filters": filters, "ways": 5, "shots": shots, "seed": seed}
    return result(choices, {"accuracy": [scores.tolist()]}, probes={"data": {"source": source}, **probes})


def table3(results, **changes):
    summary = table3_summary(replace(find("table3").sets["full"], **{"shots": (1,)} | changes), results)
    assert first_problem(whole_result("table3", **summary)) is None
    return summary


def test_the_papers_numbers_stand_beside_the_same_method_and_width():
    results = [measured("CAVIA"), measured("CAVIA", filters=128), measured("ANIL")]
    summary = table3(results, methods=("CAVIA", "ANIL"), filters=(32, 128))
    rows = {row["label"]: row["cells"][0] for row in summary["tables"][0]["rows"]}
    assert rows["CAVIA (32)"]["paper"] == {"mean": 47.24, "interval": 0.65}
    assert rows["CAVIA (32)"]["verdict"] == "within"
    assert rows["CAVIA (128)"]["verdict"] == "short"
    assert rows["ANIL (32)"]["paper"] is None
    assert rows["ANIL (128)"] is None  # not trained
    assert rows["VERSA, quoted"] == {"ours": None, "paper": {"mean": 53.40, "interval": 1.82}}
    assert "2 s each; 60,000 take 33.3 h" in rows["CAVIA (32)"]["note"]


def test_drawn_glyphs_are_compared_with_nothing():
    summary = table3([measured("CAVIA", source="synthetic glyphs, seed 0")], methods=("CAVIA",))
    assert [row["label"] for row in summary["tables"][0]["rows"]] == ["CAVIA (32)"]
    assert summary["tables"][0]["rows"][0]["cells"][0]["paper"] is None


def test_a_method_that_diverged_leaves_a_gap_and_no_claim():
    gone = lost({"method": "MAML", "filters": 32, "ways": 5, "shots": 1})
    summary = table3([measured("CAVIA"), gone], methods=("CAVIA", "MAML"))
    assert summary["tables"][0]["rows"][1]["cells"] == [None]
    assert not summary["claims"]


@pytest.mark.parametrize(("maml", "holds"), [(0.4724, True), (0.485, True), (0.46, True), (0.5, False), (0.44, False)])
def test_the_intervals_of_the_smallest_networks_must_meet(maml, holds):
    results = [measured("CAVIA"), measured("MAML", maml), measured("CAVIA", filters=128), measured("MAML", filters=128)]
    summary = table3(results, methods=("CAVIA", "MAML"), filters=(32, 128))
    assert claims(summary, "overlap") == [holds]
    assert "With 32 filters" in claim(summary, "overlap")["claim"]


@pytest.mark.parametrize(("wide", "gains"), [(0.476, True), (0.4724, False), (0.46, False)])
def test_cavia_must_gain_from_width_and_maml_must_not(wide, gains):
    for method, holds in (("CAVIA", gains), ("MAML", not gains)):
        results = [measured(method), measured(method, 0.3, filters=64), measured(method, wide, filters=128)]
        summary = table3(results, methods=(method,), filters=(32, 64, 128))
        assert claims(summary, method, "width") == [holds]


@pytest.mark.parametrize(("accuracy", "judged"), [(0.2, False), (0.249, False), (0.251, True)])
def test_nothing_is_compared_at_chance(accuracy, judged):
    results = [measured("CAVIA"), measured("MAML", accuracy), measured("MAML", 0.4, filters=64)]
    summary = table3(results, methods=("CAVIA", "MAML"), filters=(32, 64))
    assert bool(claims(summary, "overlap")) == judged
    assert bool(claims(summary, "MAML", "width")) == judged


@pytest.mark.parametrize(("agreement", "holds"), [(0.25, True), (0.2, False)])
def test_the_context_must_tell_tasks_apart_twice_as_often_as_chance(agreement, holds):
    probes = {"plane": [[0.0, 1.0], [1.0, 0.0]], "task": [0, 1], "agreement": agreement, "chance": 0.1}
    summary = table3([measured("CAVIA", **probes)], methods=("CAVIA",))
    assert claims(summary, "identify their task") == [holds]
    assert summary["figures"][-1]["name"] == "table3-contexts"


def test_the_papers_table_is_complete():
    assert len(TABLE3) + len(QUOTED) == 13
    assert all(known.keys() <= {1, 5} for known in (*TABLE3.values(), *QUOTED.values()))


# Omniglot


def omniglot(*results):
    settings = replace(find("omniglot").sets["full"], methods=("CAVIA", "MAML"), ways=(5,), shots=(1,))
    return omniglot_summary(settings, list(results))


def test_omniglot_says_whether_every_method_got_above_97_percent():
    for accuracy, holds in ((0.98, True), (0.97, False), (0.96, False)):
        assert claims(omniglot(measured("CAVIA", accuracy, source="Omniglot")), "97%") == [holds]
    good = measured("CAVIA", 0.98, source="Omniglot")
    seeds = [measured("CAVIA", share, source="Omniglot", seed=n) for n, share in enumerate((0.9, 0.98))]
    assert claims(omniglot(*seeds), "97%") == [False]
    assert claims(omniglot(good, measured("MAML", 0.9, source="Omniglot")), "97%") == [False]
    gone = omniglot(good, lost({"method": "MAML", "filters": 32, "ways": 5, "shots": 1}))
    assert claims(gone, "97%") == [False]
    assert "MAML (32): diverged" in gone["claims"][0]["evidence"]


def test_drawn_characters_are_not_judged():
    assert omniglot(measured("CAVIA", 0.98, source="synthetic glyphs, seed 0"))["claims"] == []


# Data and settings


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
        ({"methods": ("CNP",)}, "methods has no 'CNP'"),
        ({"norm": "batch"}, "norm has no 'batch'"),
        ({"filters": (0,)}, "filters must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(CaviaError, match=message):
        replace(find("table3").sets["quick"], **changes)


@pytest.mark.parametrize("method", [*COMPARED, *SYSTEMS])
def test_every_method_can_be_chosen_on_the_command_line(method):
    assert find("table3").settings("quick", {"methods": f"CAVIA, {method}"}).methods == ("CAVIA", method)


def test_filters_is_short_for_a_setting(tmp_path, capsys):
    assert main(["run", "table3", "--filters", "none", "--out", str(tmp_path)]) == 2
    assert "filters must be a whole number, got 'none'" in capsys.readouterr().err
    assert main(["run", "table1", "--filters", "32", "--out", str(tmp_path)]) == 2
    assert "table1 has no setting 'filters'" in capsys.readouterr().err
