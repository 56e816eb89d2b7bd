"""Figures made of small pictures."""

import base64
from xml.etree import ElementTree

import pytest

from cavia.errors import CaviaError
from cavia.paper.report.figures import figure_svg
from cavia.paper.report.page import write_report
from tests.paper.report.results import result, write

SVG = "{http://www.w3.org/2000/svg}"
PNG = base64.b64encode(b"\x89PNG").decode()


def pictures(panels=3, label="known <pixels> & more"):
    rows = [{"label": name, "pictures": [PNG + "0", PNG + "1"]} for name in (label, "CAVIA")]
    panel = {"title": "face", "truth": PNG, "rows": rows}
    return {
        "name": "fig5",
        "caption": "Completed faces",
        "kind": "pictures",
        "columns": ["10 pixels", "<100> pixels"],
        "panels": [panel] * panels,
    }


@pytest.mark.parametrize("panels", [1, 2, 3])
def test_svg_is_well_formed_and_the_same_each_time(panels):
    svg = figure_svg(pictures(panels), "one")
    assert svg == figure_svg(pictures(panels), "one")
    root = ElementTree.fromstring(svg)
    assert root.get("id") == "one"
    width, height = float(root.get("width")), float(root.get("height"))
    drawn = root.findall(f"{SVG}image")
    assert len(drawn) == panels * (1 + 2 * 2)
    places = {(image.get("x"), image.get("y")) for image in drawn}
    assert len(places) == len(drawn)
    for image in drawn:
        assert 0 <= float(image.get("x")) <= width - float(image.get("width"))
        assert 0 <= float(image.get("y")) <= height - float(image.get("height"))


def test_labels_are_shown_as_they_are():
    root = ElementTree.fromstring(figure_svg(pictures(), "one"))
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert {"known <pixels> & more", "CAVIA", "truth", "10 pixels", "<100> pixels"} == set(texts)


def test_pictures_that_are_no_pictures_cannot_leave_their_place():
    broken = pictures()
    broken["panels"][0]["truth"] = '"/><script>'
    assert "<script" not in figure_svg(broken, "one")


def test_page_holds_the_pictures_and_needs_nothing_from_outside(tmp_path):
    write(tmp_path / "fig5", result("fig5", figures=[pictures()]))
    index = write_report([tmp_path], tmp_path / "out")
    page = index.read_text()
    assert page.count("<image ") == 15
    assert page.count("data:image/png;base64,") == 15
    assert "known &lt;pixels&gt; &amp; more" in page
    assert ElementTree.parse(index.with_name("fig5.svg")).getroot().tag == f"{SVG}svg"
    again = write_report([tmp_path / "fig5"], tmp_path / "again")
    assert again.read_bytes() == index.read_bytes()


def without_a_picture():
    figure = pictures()
    figure["panels"][1] = {**figure["panels"][1], "rows": [{"label": "CAVIA", "pictures": [PNG]}]}
    return figure


@pytest.mark.parametrize(
    ("figure", "problem"),
    [
        (without_a_picture(), "figures[0].panels[1].rows[0].pictures must have as many entries as columns (2), got 1"),
        (pictures(panels=0), "figures[0].panels must not be empty"),
        (pictures() | {"columns": "10"}, "figures[0].columns must be a list"),
        (pictures() | {"panels": [{"title": "face", "rows": []}]}, "figures[0].panels[0].truth is missing"),
        (pictures(label=7), "figures[0].panels[0].rows[0].label must be text, got 7"),
    ],
)
def test_a_malformed_figure_is_named(figure, problem, tmp_path):
    path = write(tmp_path / "fig5", result("fig5", figures=[figure]))
    with pytest.raises(CaviaError) as error:
        write_report([tmp_path], tmp_path / "out")
    assert str(path) in str(error.value)
    assert problem in str(error.value)
