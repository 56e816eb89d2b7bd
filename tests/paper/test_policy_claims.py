"""Figures 6 and 7: what is concluded from results, by the rules of results/claims.md."""

from dataclasses import replace

import numpy as np
import pytest

from cavia.paper.catalogue import find
from cavia.paper.checking import first_problem
from cavia.paper.policies.summary import embedding_summary, rates_summary, updates_summary
from cavia.tensor_file import finite
from tests.paper.cells import claim, claims, lost, result
from tests.paper.report.results import result as whole_result

# Returns after updates


def noise(mean, tasks=40, scale=3.0, seed=0):
    drawn = np.random.default_rng(seed).normal(size=tasks)
    return (mean + scale * (drawn - drawn.mean())).tolist()


def updated(method, *returns, rate=None, validation=-15.0, later="1", seed=0, others=()):
    """Returns after 1, 2, … updates. others: another later rate, and what it validates at and gives in the end."""
    scores = {f"sampled {later}": [noise(mean) for mean in (-40.0, *returns)]}
    scores[f"mean {later}"] = [noise(mean + 1) for mean in (-40.0, *returns)]
    scores[f"validation {later}"] = [noise(mean) for mean in (-40.0, *returns)]
    for other, validated, tested in others:
        for kind, value in (("sampled", tested), ("mean", tested), ("validation", validated)):
            scores[f"{kind} {other}"] = [noise(mean) for mean in (-40.0, *returns[:-1], value)]
    rate = {"CAVIA": 1.0, "MAML": 0.1}[method] if rate is None else rate
    choices = {"method": method, "context": 0, "inner_lr": rate, "seed": seed}
    return result(choices, scores, validation=validation)


def updates(name, *results, **changes):
    settings = replace(find(name).sets["quick"], **changes)
    summary = updates_summary(settings, list(results), name)
    assert first_problem(whole_result(name, **finite(summary))) is None
    return summary


def test_the_rate_that_validates_best_is_reported_not_the_one_that_tests_best():
    summary = updates(
        "fig7a",
        updated("CAVIA", -15.0, -14.0),
        updated("MAML", -30.0, -30.0, rate=0.1, validation=-12.0),
        updated("MAML", -10.0, -10.0, rate=1.0, validation=-13.0),
        maml_lrs=(0.1, 1.0),
    )
    shown = summary["tables"][0]["rows"][2]
    assert (shown["label"], shown["cells"][1]["ours"]["mean"]) == ("MAML, sampled actions", pytest.approx(-30.0))
    assert "inner rate 0.1" in shown["cells"][1]["note"]


def test_the_later_rate_is_chosen_on_validation_tasks_after_the_last_update_for_each_method():
    summary = updates(
        "fig7a",
        updated("CAVIA", -15.0, -12.0, others=[("0.5", -11.0, -13.0), ("0.25", -14.0, -8.0)]),
        updated("MAML", -15.0, -12.0, others=[("0.5", -14.0, -8.0)]),
    )
    cavia, maml = (summary["tables"][0]["rows"][i]["cells"][2] for i in (0, 2))
    assert (cavia["ours"]["mean"], maml["ours"]["mean"]) == (pytest.approx(-13.0), pytest.approx(-12.0))
    assert "× 0.5 after the first update" in cavia["note"]
    assert "× 1 after the first update" in maml["note"]


def test_a_later_rate_that_breaks_down_is_not_chosen():
    broken = updated("CAVIA", -15.0, -12.0, others=[("0.5", -11.0, -13.0)])
    broken.scores["validation 0.5"][2][3] = None
    assert "× 1 after the first update" in updates("fig7a", broken)["tables"][0]["rows"][0]["cells"][2]["note"]


@pytest.mark.parametrize(("after", "holds"), [(-15.0, True), (-40.0, False), (-50.0, False)])
def test_one_update_must_pay(after, holds):
    assert claims(updates("fig7a", updated("CAVIA", after, after)), "One update improves CAVIA") == [holds]


@pytest.mark.parametrize(
    ("maml", "par"),
    [
        ((-15.0, -10.0), [True, True]),
        ((-16.9, -11.9), [True, True]),  # a difference for certain, and small
        ((-17.1, -7.9), [False, False]),
    ],
)
def test_navigation_is_on_a_par_within_two(maml, par):
    summary = updates("fig7a", updated("CAVIA", -15.0, -10.0), updated("MAML", *maml))
    assert claims(summary, "on a par") == par
    assert claims(summary, "above MAML's") == []


def test_navigation_is_on_a_par_where_the_interval_includes_zero():
    def apart(method, mean):  # four seeds that disagree
        return [updated(method, mean + 8 * (seed - 1.5), mean, seed=seed) for seed in range(4)]

    summary = updates("fig7a", *apart("CAVIA", -15.0), *apart("MAML", -20.0))
    assert claims(summary, "on a par") == [True, False]


@pytest.mark.parametrize(
    ("maml", "above", "caught_up"),
    [((-20.0, -20.0, -20.0), True, False), ((-20.0, -20.0, -10.0), True, True), ((-15.0, -15.0, -9.0), False, True)],
)
def test_the_cheetah_is_ahead_after_one_update_and_at_a_velocity_maml_catches_up(maml, above, caught_up):
    results = [updated("CAVIA", -15.0, -12.0, -10.0), updated("MAML", *maml)]
    summary = updates("fig6b", *results, updates=3)
    assert claims(summary, "above MAML's") == [above]
    assert claims(summary, "caught up") == [caught_up]
    assert claims(updates("fig6a", *results, updates=3), "caught up") == []
    assert claims(updates("fig6b", *results), "caught up") == []  # of two updates


def test_two_directions_are_two_tasks_so_that_only_seeds_count():
    results = [
        updated(method, mean + 4 * seed, seed=seed) for method, mean in (("CAVIA", -15.0), ("MAML", -18.0))
        for seed in range(3)
    ]  # fmt: skip
    direction = updates("fig6a", *results, updates=1)
    shown = direction["tables"][0]["rows"][0]["cells"][1]["ours"]
    assert shown["interval"] == pytest.approx(1.96 * np.std([-15, -11, -7], ddof=1) / 3**0.5)
    assert claims(direction, "above MAML's") == [False]
    assert "Intervals are over seeds." in direction["tables"][0]["caption"]
    one_seed = updates("fig6a", results[0], results[3], updates=1)
    assert one_seed["tables"][0]["rows"][0]["cells"][1]["ours"]["interval"] is None


def test_numbers_that_are_not_finite_leave_a_gap_and_no_traceback():
    broken = updated("CAVIA", -15.0, -12.0)
    broken.scores["sampled 1"][1][0] = None
    broken.curve[0][1] = None
    summary = updates("fig7a", broken, updated("MAML", -15.0, -12.0))
    assert summary["tables"][0]["rows"][0]["cells"][1]["ours"] is None
    assert summary["figures"][1]["series"][0]["y"][0] is None
    assert claims(summary, "on a par") == [False, True]
    assert claims(summary, "improves CAVIA") == [False]


def test_a_method_that_diverged_is_left_out():
    gone = lost({"method": "MAML", "context": 0, "inner_lr": 0.1})
    summary = updates("fig7a", updated("CAVIA", -15.0, -12.0), gone)
    assert len(summary["tables"][0]["rows"]) == 2
    assert claims(summary, "MAML") == []


# Figure 7b

RATES = (0.01, 0.1, 1.0)


def rates(cavia, maml):
    results = [
        lost({"method": method, "context": 0, "inner_lr": rate})
        if after is None
        else updated(method, -20.0, after, rate=rate)
        for method, returns in (("CAVIA", cavia), ("MAML", maml))
        for rate, after in zip(RATES, returns, strict=True)
    ]
    summary = rates_summary(replace(find("fig7b").sets["quick"], rates=RATES), results)
    assert first_problem(whole_result("fig7b", **finite(summary))) is None
    return summary


@pytest.mark.parametrize(
    ("cavia", "maml", "expected"),
    [
        ((-12.0, -11.0, -10.0), (-30.0, -11.0, -20.0), [True, True]),
        ((-30.0, -11.0, -10.0), (-25.0, -11.0, -20.0), [False, True]),  # a wider range than MAML's
        ((-12.0, -11.0, -10.0), (-30.0, -11.0, -11.5), [True, False]),  # competitive at two rates
        ((-12.0, -11.0, -10.0), (-30.0, -13.0, -20.0), [True, False]),  # at none
        ((-12.0, -11.0, -10.0), (-11.9, -30.0, -20.0), [True, False]),  # at another
        ((-12.0, -11.0, -10.0), (None, -11.0, -12.5), [True, True]),  # a range without an end
        ((None, -11.0, -10.0), (-30.0, -11.0, -20.0), [False, True]),
    ],
)
def test_claims_about_rates(cavia, maml, expected):
    summary = rates(cavia, maml)
    assert claims(summary) == expected
    assert [[y and round(y, 5) for y in one["y"]] for one in summary["figures"][0]["series"]] == [
        list(cavia), list(maml),
    ]  # fmt: skip


# Figure 7c


def embedded(r2=(0.9, 0.85), alignment=((0.1, -0.95), (0.92, 0.2)), seed=0):
    probes = {"contexts": [[0.0, 1.0], [1.0, 0.0]], "goals": [[0.1, 0.2], [0.3, 0.4]]}
    choices = {"method": "CAVIA", "context": 2, "inner_lr": 1.0, "seed": seed}
    return result(choices, {}, probes=probes | {"r2": list(r2), "alignment": [list(row) for row in alignment]})


def embedding(*results):
    summary = embedding_summary(find("fig7c").sets["quick"], list(results))
    assert first_problem(whole_result("fig7c", **summary)) is None
    return claims(summary)


def test_what_the_context_means_stands_beside_the_figure_if_it_was_measured():
    told = {kind: {"goal, x": 0.8, "goal, y": 0.9} for kind in ("linear", "non-linear")} | {"whole": 0.7}
    one = embedded()
    assert embedding_summary(find("fig7c").sets["quick"], [one])["tables"] == []
    one.probes.update(told)
    (table,) = embedding_summary(find("fig7c").sets["quick"], [one])["tables"]
    assert table["columns"] == ["goal, x", "goal, y", "φ"]
    assert embedding(one) == [True, True]


def test_goals_must_be_decoded_for_every_seed():
    assert embedding(embedded()) == [True, True]
    assert embedding(embedded(r2=(0.9, 0.8))) == [False, True]
    assert embedding(embedded(), embedded(r2=(0.5, 0.9), seed=1)) == [False, True]
    gone = lost({"method": "CAVIA", "context": 2, "inner_lr": 1.0, "seed": 1})
    assert embedding(embedded(), gone) == [False, False]


@pytest.mark.parametrize(
    ("alignment", "holds"),
    [
        (((0.95, 0.1), (0.2, 0.9)), True),
        (((0.1, -0.95), (-0.9, 0.3)), True),  # in the other order, with other signs
        (((0.61, -0.69), (0.68, 0.63)), False),  # a mixture
        (((0.95, 0.1), (0.2, 0.89)), False),
        (((0.95, 0.1), (0.31, 0.95)), False),
        (((0.95, 0.1), (0.95, 0.1)), False),  # both with the same
    ],
)
def test_disentangled_is_one_coordinate_for_each_parameter(alignment, holds):
    assert embedding(embedded(alignment=alignment)) == [True, holds]


def test_the_alignment_is_in_the_evidence():
    summary = embedding_summary(find("fig7c").sets["quick"], [embedded()])
    assert (
        "|r| at least 0.92 with its own coordinate, at most 0.20 with the other"
        in claim(summary, "disentangled")["evidence"]
    )
