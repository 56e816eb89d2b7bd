"""Table 1 and Figures 3 and 4: what is concluded from results, by the rules of results/claims.md."""

from dataclasses import replace

import pytest

from cavia.paper.catalogue import find
from cavia.paper.checking import first_problem
from cavia.paper.sine.summary import (
    embedding_summary,
    norms_summary,
    rates_summary,
    steps_summary,
    table1_summary,
)
from cavia.paper.sine.systems import walk_summary
from cavia.tensor_file import finite
from tests.paper.cells import claim, claims, lost, noise, result
from tests.paper.report.results import result as whole_result


def trained(method, rate, mse, validation=0.2, context=5, seed=0, scale=0.1, **more):
    """mse: after one step, or after each of several. scale: how far tasks are apart."""
    means = mse if isinstance(mse, list) else [3.0, mse]
    choices = {"method": method, "context": context, "inner_lr": rate, "seed": seed}
    return result(choices, {"mse": [noise(mean, scale=scale) for mean in means]}, validation=validation, **more)


def settings(name, **changes):
    return replace(find(name).sets["quick"], **changes)


# Beyond the paper


def test_mt_net_must_be_good_at_more_rates_than_maml():
    rates = (0.001, 0.01, 0.1)
    errors = {"CAVIA": (0.2, 0.2, 0.2), "MAML": (0.2, 0.9, 0.9), "MT-net": (0.2, 0.2, 0.9)}
    results = [trained(method, rate, mse) for method, of in errors.items() for rate, mse in zip(rates, of, strict=True)]
    of_mt_net = [
        one for one in rates_summary(settings("fig3b", rates=rates), results)["claims"] if "MT-net" in one["claim"]
    ]
    assert [one["holds"] for one in of_mt_net] == [True, True]
    assert "at more rates than MAML" in of_mt_net[0]["claim"]


@pytest.mark.parametrize(("scale", "holds"), [(0.001, True), (0.01, False)])  # an interval that reaches above the aim
def test_a_hundred_steps_must_lead_below_the_aim_and_not_back_up(scale, holds):
    results = [
        trained("CAVIA", 1.0, [3.0, 0.2, 0.1, 0.05, 2.5]),
        trained("CAVIA, Gauss–Newton", 1.0, [3.0, 0.2, 0.1, 0.05, 0.001], validation=0.1, scale=scale),
        trained("CAVIA, Gauss–Newton", 10.0, [3.0, 0.2, 0.1, 0.05, 1.0], validation=0.2),
    ]
    chosen = settings("sine_steps", steps=4, methods=("CAVIA", "CAVIA, Gauss–Newton"))
    summary = walk_summary(chosen, results)
    assert claims(summary) == [holds, False, True]
    assert first_problem(whole_result(**summary)) is None


# Table 1


def test_table1_reports_the_rate_that_validates_best_not_the_one_that_tests_best():
    summary = table1_summary(
        settings("table1", contexts=(5,), maml_lrs=(0.01, 0.02)),
        [trained("CAVIA", 1.0, 0.19), trained("MAML", 0.01, 0.24, 0.21), trained("MAML", 0.02, 0.20, 0.22)],
    )
    ours, theirs = (row["cells"][0] for row in summary["tables"][0]["rows"])
    assert theirs["ours"]["mean"] == pytest.approx(0.24)
    assert theirs["verdict"] == "within"
    assert "inner rate 0.01" in theirs["note"]
    assert ours["paper"] == {"mean": 0.19, "interval": 0.02}
    assert first_problem(whole_result(**summary)) is None


def test_the_rate_is_chosen_by_its_mean_over_seeds():
    results = [
        trained("MAML", 0.01, 0.3, 0.1), trained("MAML", 0.01, 0.3, 0.9, seed=1),
        trained("MAML", 0.02, 0.4, 0.3), trained("MAML", 0.02, 0.4, 0.3, seed=1),
    ]  # fmt: skip
    row = table1_summary(settings("table1", contexts=(0,)), [replaced(one, context=0) for one in results])
    assert row["tables"][0]["rows"][1]["cells"][0]["ours"]["mean"] == pytest.approx(0.4)


def replaced(one, **choices):
    return replace(one, choices={**one.choices, **choices})


@pytest.mark.parametrize(("maml", "holds"), [(0.21, True), (0.19, False), (0.17, False)])
def test_cavia_must_be_below_maml_on_the_same_tasks(maml, holds):
    results = [trained("CAVIA", 1.0, 0.19), trained("MAML", 0.01, maml)]
    summary = table1_summary(settings("table1", contexts=(5,)), results)
    assert claims(summary) == [holds]
    # The tasks are ten times as far apart as the methods: only the pairing shows the difference.
    assert summary["tables"][0]["rows"][0]["cells"][0]["ours"]["interval"] > 0.02


def test_every_size_from_two_on_must_be_below_and_none_may_have_diverged():
    sizes = (1, 2, 50)
    cavia = [trained("CAVIA", 1.0, 0.9 if size == 1 else 0.19, context=size) for size in sizes]
    maml = [trained("MAML", 0.01, 0.3, context=size) for size in sizes]
    order = settings("table1", contexts=(0, *sizes))
    assert claims(table1_summary(order, [*cavia, *maml])) == [True]
    diverged = lost({"method": "CAVIA", "context": 50, "inner_lr": 1.0})
    summary = table1_summary(order, [*cavia[:2], diverged, *maml])
    assert claims(summary) == [False]
    assert "50: diverged" in summary["claims"][0]["evidence"]
    assert summary["tables"][0]["rows"][0]["cells"][3] is None


def test_a_rate_of_which_a_seed_diverged_is_out():
    choices = {"method": "MAML", "context": 5, "inner_lr": 0.02, "seed": 1}
    results = [trained("CAVIA", 1.0, 0.19), trained("MAML", 0.02, 0.2, 0.1), lost(choices), trained("MAML", 0.01, 0.3)]
    row = table1_summary(settings("table1", contexts=(5,)), results)["tables"][0]["rows"][1]["cells"][0]
    assert row["ours"]["mean"] == pytest.approx(0.3)


# Figure 3a

FALLS = [3.0, 0.2, 0.1, 0.05]


def steps(cavia=FALLS, maml=(3.0, 0.3, 0.2, 0.4), *others):
    results = [trained("CAVIA", 1.0, list(cavia)), trained("MAML", 0.01, list(maml), 0.3), *others]
    summary = steps_summary(settings("fig3a", steps=3), results)
    assert first_problem(whole_result("fig3a", **finite(summary))) is None
    return summary


def test_more_steps_help_cavia_and_hurt_maml():
    assert claims(steps()) == [True, True, True]


@pytest.mark.parametrize(
    ("cavia", "maml", "expected"),
    [
        ([3.0, 0.2, 0.21, 0.05], [3.0, 0.3, 0.2, 0.4], [False, False, True]),  # rises, and above MAML at two steps
        ([3.0, 0.2, 0.2, 0.05], [3.0, 0.3, 0.25, 0.4], [False, True, True]),  # as high as before is not lower
        ([3.0, 0.3, 0.1, 0.05], [3.0, 0.3, 0.2, 0.4], [True, False, True]),  # level with MAML at one step
        (FALLS, [3.0, 0.3, 0.2, 0.19], [True, True, False]),  # MAML falls, too
        (FALLS, [2.0, 0.3, 0.2, 0.4], [True, True, True]),  # without a step nothing is compared
    ],
)
def test_claims_about_steps(cavia, maml, expected):
    assert claims(steps(cavia, maml)) == expected


def test_the_rival_is_the_rate_that_validates_best_after_one_step_and_the_others_are_shown_behind():
    better_later = trained("MAML", 0.001, [3.0, 0.5, 0.04, 0.01], 0.5)
    summary = steps(FALLS, (3.0, 0.3, 0.2, 0.4), better_later)
    assert claims(summary) == [True, True, True]
    assert "MAML's rate 0.01" in summary["claims"][1]["evidence"]
    labels = [one["label"] for one in summary["figures"][0]["series"]]
    assert labels == ["CAVIA (inner rate 1)", "MAML (inner rate 0.01)", "MAML (inner rate 0.001)"]


def test_errors_off_the_scale_are_gaps_and_no_fault():
    summary = steps(maml=(3.0, 0.3, 31.0, 0.4))
    assert summary["figures"][0]["series"][1]["y"] == [pytest.approx(3.0), pytest.approx(0.3), None, pytest.approx(0.4)]
    broken = trained("MAML", 0.02, [3.0, 0.25, 0.2, 0.1], 0.1)
    broken.scores["mse"][3][7] = None  # of one task the error is infinite
    summary = steps(FALLS, (3.0, 0.3, 0.2, 0.4), broken)
    assert summary["figures"][0]["series"][1]["y"][3] is None
    assert claims(summary) == [True, True, True]


# Figures 3b and 3c


def rates(cavia=(0.2, 0.21, 0.2), maml=(0.9, 0.4, None), start=(0.2, 0.2, 0.9)):
    three, results = (0.1, 1.0, 10.0), []
    for method, values in (("CAVIA", cavia), ("MAML", maml), ("CAVIA, learned start", start)):
        for rate, mse in zip(three, values, strict=True):
            gone = lost({"method": method, "context": 5, "inner_lr": rate})
            results.append(gone if mse is None else trained(method, rate, mse))
    summary = rates_summary(settings("fig3b", rates=three), results)
    assert first_problem(whole_result("fig3b", **finite(summary))) is None
    return summary


def test_a_rate_that_diverged_is_a_gap():
    series = rates()["figures"][0]["series"]
    assert series[1]["y"] == [pytest.approx(0.9), pytest.approx(0.4), None]
    assert "diverged" in claim(rates(), "MAML", "1.5")["evidence"]


def test_robust_is_within_one_and_a_half_times_the_best_and_the_looser_rule_is_shown_beside_it():
    assert claims(rates(), "1.5") == claims(rates(), "2 times") == [True, True, True]
    wide = rates(cavia=(0.2, 0.35, 0.2))
    assert [claims(wide, "CAVIA is robust", rule) for rule in ("1.5", "2 times")] == [[False], [True]]
    assert claim(wide, "MAML", "1.5")["holds"]  # at one rate; CAVIA at two
    assert not claim(wide, "learned start", "1.5")["holds"]  # at two
    assert claim(wide, "learned start", "2 times")["holds"]


def test_an_error_that_is_not_finite_is_not_within_anything():
    broken = [trained(method, 1.0, 0.2) for method in ("CAVIA", "MAML")]
    broken[1].scores["mse"][1][0] = None
    summary = rates_summary(settings("fig3b", rates=(1.0,)), broken)
    assert summary["figures"][0]["series"][1]["y"] == [None]
    assert claims(summary, "MAML", "1.5") == [True]


@pytest.mark.parametrize(
    ("norms", "holds"),
    [
        ([5.0, 2.0, 1.0], True),
        ([5.0, 1.0, 2.0], False),
        ([5.0, 5.0, 1.0], False),
        ([5.0, None, 1.0], False),
    ],
)
def test_the_norm_must_fall_with_every_larger_rate(norms, holds):
    three = (0.1, 1.0, 10.0)
    results = [
        lost({"method": "CAVIA", "context": 5, "inner_lr": rate})
        if norm is None
        else trained("CAVIA", rate, 0.2, probes={"norm": norm})
        for rate, norm in zip(three, norms, strict=True)
    ]
    summary = norms_summary(settings("fig3c", rates=three), results)
    assert claims(summary) == [holds]
    assert summary["figures"][0]["series"][0]["y"] == norms


def test_norms_are_averaged_over_seeds_and_one_that_is_not_finite_is_a_gap():
    results = [trained("CAVIA", 1.0, 0.2, seed=seed, probes={"norm": norm}) for seed, norm in enumerate((1.0, 3.0))]
    results += [trained("CAVIA", 10.0, 0.2, seed=seed, probes={"norm": norm}) for seed, norm in enumerate((1.0, None))]
    summary = norms_summary(settings("fig3c", rates=(1.0, 10.0)), results)
    assert summary["figures"][0]["series"][0]["y"] == [2.0, None]
    assert claims(summary) == [False]


# Figure 4


def embedded(amplitude, phase, seed=0, **more):
    probes = more | {"context": [[0.1, 0.2]] * 3, "amplitude": [1.0, 2.0, 3.0], "phase": [0.1, 0.2, 0.3]}
    return trained(
        "CAVIA", 1.0, 0.2, context=2, seed=seed, probes=probes | {"r2": {"amplitude": amplitude, "phase": phase}}
    )


def test_what_the_context_means_stands_beside_the_figure_if_it_was_measured():
    told = {"linear": {"amplitude": 0.9, "phase": 0.7}, "non-linear": {"amplitude": 0.99, "phase": 0.98}, "whole": 0.95}
    (table,) = embedding_summary(settings("fig4"), [embedded(0.9, 0.9, **told)])["tables"]
    assert table["columns"] == ["amplitude", "phase", "φ"]
    assert table["rows"][0]["cells"][1]["ours"]["mean"] == pytest.approx(0.7)
    assert embedding_summary(settings("fig4"), [embedded(0.9, 0.9)])["tables"] == []


def test_every_seed_must_embed_smoothly_and_is_drawn():
    good, bad = embedded(0.9, 0.81), embedded(0.99, 0.8, seed=1)
    summary = embedding_summary(settings("fig4"), [good])
    assert claims(summary) == [True]
    assert first_problem(whole_result("fig4", **summary)) is None
    both = embedding_summary(settings("fig4"), [good, bad])
    assert claims(both) == [False]
    assert [figure["name"] for figure in both["figures"]] == ["fig4", "fig4-seed-1"]
    gone = lost({"method": "CAVIA", "context": 2, "inner_lr": 1.0, "seed": 1})
    assert claims(embedding_summary(settings("fig4"), [good, gone])) == [False]
