import re
import sys
from xml.etree import ElementTree

import pytest

from cavia.paper.report.figures import figure_svg
from cavia.paper.report.palette import CLASSES, METHODS, line_styles
from tests.paper.report.results import lines, scatter


@pytest.mark.slow
@pytest.mark.parametrize("figure", [lines(), scatter()], ids=["lines", "scatter"])
def test_svg_is_well_formed_and_the_same_each_time(figure):
    svg = figure_svg(figure, "one")
    ElementTree.fromstring(svg)
    assert svg == figure_svg(figure, "one")
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.slow
def test_two_figures_on_one_page_share_no_id():
    svgs = [figure_svg(lines(), prefix) for prefix in ("one", "two")]
    first, second = (set(re.findall(r'\bid="([^"]+)"', svg)) for svg in svgs)
    assert first
    assert not first & second
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svgs[0]))
    assert used <= first
    assert all(rule.startswith("#one ") for rule in re.findall(r"<style[^>]*>([^<]*)</style>", svgs[0]))


@pytest.mark.slow
def test_values_that_diverged_are_marked():
    whole = lines()
    whole["series"][1]["y"] = [0.4, 0.5, 0.6]
    assert ">diverged<" in figure_svg(lines(), "one")
    assert ">diverged<" not in figure_svg(whole, "one")


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_figures_without_values_are_drawn(scale):
    nothing = lines() | {"y_scale": scale, "series": [{"label": "MAML", "x": [1, 2], "y": [None, None]}]}
    assert "<svg" in figure_svg(nothing, "one")
    assert "<svg" in figure_svg(nothing | {"series": []}, "one")
    assert "<svg" in figure_svg(scatter() | {"panels": []}, "one")


def test_signs_of_mathematics_are_shown_as_they_are():
    assert ">cost in $, from $1 up<" in figure_svg(lines() | {"y_label": "cost in $, from $1 up"}, "one")


def test_a_method_keeps_its_colour_whatever_the_order():
    colours = [style["color"] for style in line_styles(["MAML", "CAVIA with learned φ₀", "something else", "CAVIA"])]
    assert colours[0] == METHODS["MAML"][0]
    assert colours[1] == METHODS["CAVIA, learned start"][0]
    assert colours[3] == METHODS["CAVIA"][0]
    assert len(set(colours)) == 4


def test_many_series_stay_distinct():
    looks = [tuple(style.values()) for style in line_styles([f"series {number}" for number in range(30)])]
    assert len(set(looks)) == 30


def test_many_lines_of_one_method_get_paler():
    colours = [style["color"] for style in line_styles([f"MAML (inner rate {rate})" for rate in (1, 2, 3)])]
    assert colours[0] == METHODS["MAML"][0]
    brightness = [sum(bytes.fromhex(colour[1:])) for colour in colours]
    assert brightness == sorted(set(brightness))


@pytest.mark.slow
def test_things_with_numbers_have_colours_of_their_own():
    panel = {"title": "tasks", "x": [0.0, 1.0, 2.0], "y": [1.0, 0.0, 2.0], "colour": [0, 1, 2], "colour_label": "task"}
    numbered = figure_svg(scatter() | {"panels": [panel]}, "one")
    measured = figure_svg(scatter() | {"panels": [panel | {"colour": [0.5, 1.0, 2.0]}]}, "one")
    for colour in CLASSES[:3]:
        assert f"fill: {colour}" in numbered
        assert f"fill: {colour}" not in measured


@pytest.mark.slow
def test_a_point_without_a_line_is_larger():
    def marks(x):
        drawn = lines() | {"series": [{"label": "CAVIA", "x": x, "y": [0.2] * len(x)}]}
        return re.findall(r'<path id="[^"]*-m[^"]*" d="M 0 ([0-9.]+)', figure_svg(drawn, "one"))

    assert max(map(float, marks([0.1]))) > max(map(float, marks([0.1, 1.0])))
