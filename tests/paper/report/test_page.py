import re
from dataclasses import replace
from pathlib import Path

import pytest

from cavia.paper.catalogue import CATALOGUE
from cavia.paper.report.page import write_report
from tests.paper.report.results import lines, result, scatter, table, write


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    claims = [
        {"claim": "CAVIA is flat <script>", "holds": True, "evidence": "0.20 & 0.21"},
        {"claim": "MAML is not", "holds": False, "evidence": "it is"},
    ]
    write(folder / "table1", result(tables=[table()], claims=claims))
    write(folder / "fig3b", result("fig3b", figures=[lines()]))
    write(folder / "fig4", result("fig4", figures=[scatter()], title="A <b>bold</b> title"))
    return folder


def test_page_shows_numbers_verdicts_claims_and_figures(results, tmp_path):
    index = write_report([results], tmp_path / "out")
    page = index.read_text()
    assert index == tmp_path / "out" / "index.html"
    for text in ("0.99 ± 0.05", "0.84 ± 0.06", "1 short", "1 within", "1 of 2 hold", "1 h 24 min", "40 / 40"):
        assert text in page
    assert page.count("<svg ") == 2
    assert "Quick budget" not in page
    assert sorted(path.name for path in index.parent.iterdir()) == ["fig3b.svg", "fig4.svg", "index.html", "report.md"]


@pytest.mark.slow
def test_markdown_shows_the_same(results, tmp_path):
    page = write_report([results], tmp_path / "out").with_name("report.md").read_text()
    for text in (
        "0.99 ± 0.05",
        "0.84 ± 0.06",
        "✗ does not hold: MAML is not\n    - it is",
        "(fig3b.svg)",
        r"A \<b\>bold\</b\> title",
    ):
        assert text in page


@pytest.mark.slow
def test_page_escapes_and_needs_nothing_from_outside(results, tmp_path):
    page = write_report([results], tmp_path / "out").read_text()
    assert "CAVIA is flat &lt;script&gt;" in page
    assert "0.20 &amp; 0.21" in page
    assert "<b>" not in page
    assert not re.search(r"<script|<link|\bsrc=|@import|url\((?!#)", page)
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.slow
def test_same_results_give_the_same_bytes(results, tmp_path):
    pages = [write_report([results], tmp_path / name).parent for name in ("one", "two")]
    contents = [{path.name: path.read_bytes() for path in page.iterdir()} for page in pages]
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_the_committed_page_is_made_from_the_committed_results(tmp_path):
    results = Path(__file__).parents[3] / "results"
    page = write_report([results], tmp_path).with_name("report.md").read_text()
    assert page == (results / "report.md").read_text(), "run: cavia report results --out results"


def test_order_is_the_catalogues_with_full_before_quick(tmp_path):
    names = [
        ("zeta", "full"),
        ("modes", "quick"),
        ("dynamics", "full"),
        ("fig4", "full"),
        ("table2", "full"),
        ("table1", "quick"),
        ("table1", "full"),
    ]
    for name, budget in names:
        write(tmp_path / f"{name}-{budget}", result(name, budget))
    page = write_report([tmp_path], tmp_path / "out").read_text()
    anchors = re.findall(r'<section id="([^"]+)"', page)
    of_paper = ["summary", "table1-full", "table1-quick", "fig4-full", "table2-full"]
    assert anchors == [*of_paper, "beyond", "dynamics-full", "modes-quick", "zeta-full"]
    assert page.count("Quick budget: expect worse numbers than the paper") == 1
    assert page.count("Quick budget: expect worse numbers than with --full") == 1


@pytest.mark.parametrize(("names", "there"), [(["table1"], {"summary"}), (["dynamics"], {"beyond"})])
def test_a_part_without_experiments_is_left_out(names, there, tmp_path):
    for name in names:
        write(tmp_path / name, result(name))
    index = write_report([tmp_path], tmp_path / "out")
    anchors = set(re.findall(r'<section id="([^"]+)"', index.read_text()))
    assert anchors & {"summary", "beyond"} == there
    assert ("## Beyond the paper" in index.with_name("report.md").read_text()) == ("beyond" in there)


def test_where_an_experiment_stands_is_a_field_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setitem(CATALOGUE, "table1", replace(CATALOGUE["table1"], beyond=True))
    write(tmp_path, result("table1"))
    assert '<section id="beyond"' in write_report([tmp_path], tmp_path / "out").read_text()


def test_changed_settings_are_named(tmp_path):
    command = (
        "cavia run table1 --full --set minutes=11 --set 'methods=CAVIA,CAVIA (first order)' --set many=" + "1," * 40
    )
    write(tmp_path, result(budget="own", command=command))
    index = write_report([tmp_path], tmp_path / "out")
    for page in (index, index.with_name("report.md")):
        assert "full, 3 settings changed" in page.read_text()
        assert "Changed from --full: minutes 11, methods CAVIA / CAVIA (first order), many 1 (40 times) /" in (
            page.read_text()
        )
        assert "own" not in re.findall(r"budget: (\w+)", page.read_text())


@pytest.mark.slow
def test_figures_of_one_name_get_files_of_their_own(tmp_path):
    for place, budget in (("a", "full"), ("b", "quick"), ("c", "quick")):
        write(tmp_path / place, result("fig3b", budget, figures=[lines()]))
    index = write_report([tmp_path], tmp_path / "out")
    drawn = sorted(path.name for path in index.parent.glob("*.svg"))
    assert drawn == ["full-fig3b.svg", "quick-fig3b-2.svg", "quick-fig3b.svg"]


def test_two_runs_of_an_experiment_are_told_apart_by_their_settings(tmp_path):
    for place, minutes in (("short", 40.0), ("long", 100.0)):
        write(tmp_path / place, result(settings={"minutes": minutes, "hidden": [40, 40]}))
    index = write_report([tmp_path], tmp_path / "out")
    for page in (index, index.with_name("report.md")):
        assert page.read_text().count("(minutes 40)") == 2  # in the summary and above the section
        assert page.read_text().count("(minutes 100)") == 2


@pytest.mark.slow
def test_a_result_found_twice_is_shown_once(results, tmp_path):
    page = write_report([results, results / "table1"], tmp_path / "out").read_text()
    assert page.count('<section id="table1') == 1


def test_a_long_command_is_broken_at_its_options(tmp_path):
    options = [f"--set setting_{number}={number}" for number in range(12)]
    write(tmp_path, result(command=" ".join(["cavia run table1 --full", *options])))
    page = write_report([tmp_path], tmp_path / "out")
    for file in (page, page.with_name("report.md")):
        command = re.search(r"cavia run table1 --full.*?(?=\n```|</code>)", file.read_text(), flags=re.DOTALL)[0]
        assert all(len(line) <= 100 for line in command.splitlines())
        assert command.replace(" \\\n   ", "").split(" --set ")[1:] == [option[6:] for option in options]


def test_settings_are_one_entry_and_repeated_values_are_counted(tmp_path):
    write(tmp_path, result(settings={"lr": 0.001, "shots": [10] * 60 + [100, 100]}))
    page = write_report([tmp_path], tmp_path / "out").with_name("report.md").read_text()
    assert "- settings: lr 0.001, shots 10 (60 times) / 100 / 100\n" in page


def test_what_is_beyond_the_paper_is_said_once(tmp_path):
    write(tmp_path, result("omniglot", reproduces="beyond the paper: accuracy on Omniglot"))
    page = write_report([tmp_path], tmp_path / "out").with_name("report.md").read_text()
    assert "| omniglot | Accuracy on Omniglot |" in page
    assert "beyond the paper:" not in page
