"""Dynamics, many modes and exploration: what is concluded from results, by the rules of results/claims.md."""

from dataclasses import replace

import pytest

from cavia.paper.catalogue import find
from cavia.paper.checking import first_problem
from cavia.paper.dynamics.summary import summary as dynamics_summary
from cavia.paper.exploration.summary import summary as exploration_summary
from cavia.paper.modes.summary import summary as modes_summary
from cavia.paper.modes.training import cells as modes_cells
from cavia.paper.report.figures import figure_svg
from tests.paper.cells import claim, claims, noise, result
from tests.paper.report.results import result as whole_result

# Dynamics

PANEL = {"title": "beta 1", **{key: [[0.0, 1.0], [1.0, 2.0]] for key in ("truth", "before", "after", "known")}}


def trained(method, in_domain, adapted, seed=0, told=0.999, back=0.995, seconds=200.0, whole=0.99):
    scores = {
        "in-domain": [noise(1.0, 9), noise(in_domain, 9, scale=1e-6)],
        "adapted": [noise(1.0, 4), noise(adapted, 4, scale=1e-6)],
    }
    probes = {
        "portraits": [PANEL] * 4,
        "context": [[0.1, 0.2], [0.3, 0.4]],
        "parameters": {"beta": [0.5, 1.0], "delta": [1.0, 0.5]},
        "linear": {"beta": 0.9, "delta": 0.8},
        "non-linear": {"beta": told, "delta": 0.9999},
        "of context": [back, 0.999],
        "start": [0.01, -0.2],
    }
    probes |= {} if whole is None else {"whole": whole}
    choices = {"systems": "Lotka–Volterra", "method": method, "seed": seed}
    return result(choices, scores, probes=probes, seconds=seconds)


def conclusions(*results):
    settings = replace(find("dynamics").sets["full"], systems=("Lotka–Volterra",))
    summary = dynamics_summary(settings, list(results))
    assert first_problem(whole_result(**summary)) is None
    return summary


def test_all_claims_hold_for_small_errors_and_a_context_that_tells():
    ours = [trained("Gauss–Newton", 1e-5, 4e-5, seed) for seed in range(3)]
    summary = conclusions(*ours, trained("CAVIA", 9e-5, 2e-4))
    assert [one["holds"] for one in summary["claims"]] == [True] * 5
    row = summary["tables"][0]["rows"][0]
    assert row["label"] == "Gauss–Newton, 2 steps"
    assert row["cells"][0]["ours"]["mean"] == pytest.approx(1.0)  # in units of 1e-5
    assert summary["tables"][0]["rows"][-1]["cells"][0]["paper"] == {"mean": pytest.approx(3.7), "interval": None}


def test_each_claim_fails_by_its_own_number():
    assert claims(conclusions(trained("Gauss–Newton", 3e-5, 4e-5)), "at most 2.5e-05") == [False]
    assert claims(conclusions(trained("Gauss–Newton", 1e-5, 6e-5)), "at most 2.5e-05") == [False]
    assert claims(conclusions(trained("Gauss–Newton", 1e-5, 4e-5, seconds=1801)), "30 CPU minutes") == [False]
    assert claims(conclusions(trained("Gauss–Newton", 1e-5, 4e-5, told=0.98)), "can be decoded") == [False]
    assert claims(conclusions(trained("Gauss–Newton", 1e-5, 4e-5, back=0.98)), "nothing else") == [False]
    both = trained("Gauss–Newton", 1e-5, 4e-5), trained("CAVIA", 2e-5, 3e-5)
    assert claims(conclusions(*both), "below that of CAVIA") == [False]


def test_its_figures_can_be_drawn():
    summary = conclusions(trained("Gauss–Newton", 1e-5, 4e-5))
    assert [figure["kind"] for figure in summary["figures"]] == ["portraits", "curves", "scatter"]
    for figure in summary["figures"]:
        assert figure_svg(figure, figure["name"]).startswith("<svg")


def test_what_the_context_means_stands_beside_it_with_an_interval_over_seeds():
    ours = [trained("Gauss–Newton", 1e-5, 4e-5, seed, told) for seed, told in enumerate((0.995, 0.999))]
    _, table = conclusions(*ours, trained("CAVIA", 9e-5, 2e-4))["tables"]
    assert table["columns"] == ["beta", "delta", "φ"]
    labels = [row["label"] for row in table["rows"]]
    ways = ["decoded linearly from φ", "decoded from φ by kernel regression", "predicted from the parameters"]
    assert labels == [f"{method}, {way}" for method in ("Gauss–Newton", "CAVIA") for way in ways]
    beta, _, nothing = table["rows"][1]["cells"]
    assert beta["ours"] == {"mean": pytest.approx(0.997), "interval": pytest.approx(1.96 * 0.002)}
    assert beta["note"] == "seeds 0.9950 to 0.9990"
    assert nothing is None
    assert table["rows"][2]["cells"][2]["ours"]["mean"] == pytest.approx(0.99)


def test_cells_that_were_measured_before_there_was_a_score_are_still_summed_up():
    table = conclusions(trained("Gauss–Newton", 1e-5, 4e-5, whole=None))["tables"][1]
    assert table["rows"][2]["cells"] == [None] * 3
    broken = trained("Gauss–Newton", 1e-5, 4e-5)
    for name in ("linear", "non-linear", "of context", "start", "whole"):  # as for contexts that are not finite
        del broken.probes[name]
    summary = conclusions(broken)
    assert len(summary["tables"]) == 1
    assert not claim(summary, "encodes the parameters")["holds"]


# Many modes

CURVE = {name: [0.0, 1.0] for name in ("x", "truth", "before", "after")} | {"known": [[0.5, 0.5]], "title": "line"}


def fitted(method, mse, steps=1, rates=(1.0, 0.0), validation=0.2, seed=0, **probes):
    choices = {
        "method": method, "inner_steps": steps, "context_lr": rates[0], "weights_lr": rates[1], "seed": seed,
    }  # fmt: skip
    scores = {"mse": [noise(mean) for mean in (3.0, mse)]}
    return result(choices, scores, validation=validation, probes={"of kinds": {"sine": mse, "line": None}, **probes})


def test_the_hybrid_must_be_below_at_every_number_of_steps():
    settings = replace(find("modes").sets["full"], inner_steps=(1, 2))
    rivals = [fitted("CAVIA", 0.5, steps) for steps in (1, 2)] + [fitted("MAML", 0.5, steps) for steps in (1, 2)]
    ahead = modes_summary(settings, [*rivals, fitted("CAVIA + MAML", 0.4), fitted("CAVIA + MAML", 0.4, 2)])
    assert claims(ahead) == [True, True]
    assert first_problem(whole_result(**ahead)) is None
    behind = modes_summary(settings, [*rivals, fitted("CAVIA + MAML", 0.4), fitted("CAVIA + MAML", 0.5, 2)])
    assert claims(behind) == [False, False]


def test_modes_show_curves_of_the_method_that_validates_best_and_what_contexts_of_sines_mean():
    settings = replace(find("modes").sets["quick"])
    told = {"linear": {"phase": 0.5}, "non-linear": {"phase": 0.9}, "of context": [0.1], "whole": 0.1}
    broken = CURVE | {"title": "sine", "after": [0.0, None]}  # it was not finite
    results = [
        fitted("CAVIA", 0.5, validation=0.1, curves=[CURVE, broken], **told),
        fitted("MAML", 0.4, validation=0.2, curves=[CURVE | {"title": "sine"}]),
    ]
    summary = modes_summary(settings, results)
    assert first_problem(whole_result(**summary)) is None
    (figure,) = summary["figures"]  # one number of steps has no curve
    assert [panel["title"] for panel in figure["panels"]] == ["line"]
    assert "fitted by CAVIA" in figure["caption"]
    assert "after 1 gradient step." in figure["caption"]
    captions = [table["caption"] for table in summary["tables"]]
    assert "validation" not in captions[0]  # of one choice
    assert "after 1 step, mean over seeds." in captions[1]
    assert summary["tables"][2]["rows"][0]["label"] == "CAVIA, decoded linearly from φ"
    assert "best on validation tasks" in modes_summary(find("modes").sets["full"], results)["tables"][0]["caption"]


def test_rates_are_chosen_by_validation_and_every_method_has_as_many():
    settings = replace(find("modes").sets["full"], inner_steps=(1,))
    results = [
        fitted("CAVIA", 0.3, rates=(0.1, 0.0), validation=0.9), fitted("CAVIA", 0.5, validation=0.1),
        fitted("MAML", 0.5), fitted("CAVIA + MAML", 0.4, rates=(1.0, 0.01)),
    ]  # fmt: skip
    summary = modes_summary(settings, results)
    assert summary["tables"][0]["rows"][0]["cells"][0]["ours"]["mean"] == pytest.approx(0.5)
    assert "of weights 0.01" in summary["tables"][0]["rows"][2]["cells"][0]["note"]
    assert claim(summary, "that of CAVIA at")["holds"]
    counts = {}
    for cell in modes_cells(settings, 1):
        counts[cell["method"]] = counts.get(cell["method"], 0) + 1
    assert set(counts.values()) == {4}


# Exploration

SAMPLED, RIVALS = "CAVIA, sampled context", ("CAVIA", "MAML", "E-MAML")


def explored(method, returns, rate=1.0, validated=5.0):
    """Returns after 0 to 3 updates; validated: the mean on validation tasks after the last."""
    walk = [[[0.0, 0.0], [0.1, 0.2]]] * 2
    scores = {}
    for later in ("1", "0.5"):
        scores[f"sampled {later}"] = [noise(mean, scale=1e-3) if mean else [0.0] * 50 for mean in returns]
        scores[f"validation {later}"] = [[validated if later == "1" else 0.0] * 4] * 4
    probes = {"paths": {"goal": [0.0, 2.0], "1": [walk] * 4, "0.5": [walk] * 4}}
    return result({"method": method, "inner_lr": rate}, scores, probes=probes)


def exploration(*results):
    summary = exploration_summary(find("exploration").sets["full"], list(results))
    assert first_problem(whole_result(**summary)) is None
    return summary


def test_sampling_must_be_ahead_of_each_rival_after_every_update():
    ours = explored(SAMPLED, [5.0, 20.0, 25.0, 30.0])
    ahead = exploration(ours, *(explored(rival, [0.0, 10.0, 12.0, 12.0]) for rival in RIVALS))
    assert claims(ahead, "action noise") == [True] * 3
    assert claims(ahead, "reaches more goals") == [True] * 3
    assert claims(ahead, "Credit for exploration") == [False]  # on a par
    once = exploration(ours, explored("MAML", [5.0, 21.0, 12.0, 12.0]), explored("E-MAML", [5.0, 22.0, 13.0, 13.0]))
    assert claims(once, "action noise") == [False] * 2
    assert claims(once, "reaches more goals") == [False] * 2
    assert claims(once, "Credit for exploration") == [True]


def test_rates_are_chosen_by_the_sparse_reward_on_validation_goals():
    tried = explored("CAVIA", [0.0, 9.0, 9.0, 9.0], 0.3), explored("CAVIA", [0.0, 2.0, 2.0, 2.0], 1.0, validated=6.0)
    summary = exploration(explored(SAMPLED, [5.0, 5.0, 5.0, 5.0]), *tried)
    assert summary["tables"][0]["rows"][0]["cells"][3]["ours"]["mean"] == pytest.approx(2.0)
    assert summary["tables"][1]["rows"][1]["cells"][0]["ours"]["mean"] == pytest.approx(100.0)


def test_its_paths_can_be_drawn():
    summary = exploration(explored(SAMPLED, [5.0, 5.0, 5.0, 5.0]), explored("MAML", [5.0, 5.0, 5.0, 5.0]))
    lines, paths = summary["figures"]
    assert (lines["kind"], paths["kind"]) == ("lines", "paths")
    assert paths["columns"] == ["before", "1 update", "3 updates"]
    for figure in summary["figures"]:
        assert figure_svg(figure, figure["name"]).startswith("<svg")
