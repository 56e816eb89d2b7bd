"""What docs/site_hooks.py and docs/docstring_lists.py do with pages and docstrings on their way to the site."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent


def from_docs(name, needs):
    """A module of docs/, which is no package."""
    pytest.importorskip(needs, reason="needs the extra docs")
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hooks():
    return from_docs("site_hooks", "mkdocs")


@pytest.mark.parametrize(
    ("link", "on_the_site"),
    [
        ("[page](bench.md#speed)", "[page](bench.md#speed)"),  # another page of results/
        ("[how](../../docs/performance.md)", "[how](../../performance.md)"),  # a page of docs/
        ("[numbers](bench.json)", "numbers"),  # only in the repository
        ("[paper](https://arxiv.org)", "[paper](https://arxiv.org)"),
        ("[below](#speed)", "[below](#speed)"),
        ("![figure](bench.png)", "![figure](bench.png)"),
    ],
)
def test_pages_of_results_link_to_what_the_site_has(hooks, link, on_the_site):
    shown = {"results/benchmarks/bench.md", "results/benchmarks/sine.md"}
    assert hooks.for_the_site(link, "results/benchmarks/sine.md", shown) == on_the_site


def test_pages_of_docs_link_to_results_and_only_name_source_files(hooks):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="methods/maml.md"))
    text = "[`inner.py`](../../src/cavia/learners/inner.py), [report](../../results/report.md), [CAVIA](cavia.md)"
    shown = "`inner.py`, [report](../results/report.md), [CAVIA](cavia.md)"
    assert hooks.on_page_markdown(text, page, None, None) == shown


def test_short_code_is_not_broken(hooks):
    html = f"<p><code>--most-tasks</code> and <code>{'long ' * 20}</code></p>"
    changed = hooks.on_page_content(html, None, None, None)
    assert changed == html.replace("<code>--most", '<code class="whole">--most')


def test_arguments_of_a_docstring_become_a_list():
    as_list = from_docs("docstring_lists", "griffe").as_list
    text = "Curves.\n\nsine: A sin(x),\n    with A above 0\nl1, l2: distances\n\nNote: not an argument"
    assert as_list(text).splitlines() == [
        "Curves.", "", "", "- `sine`: A sin(x), with A above 0", "- `l1, l2`: distances", "", "Note: not an argument",
    ]  # fmt: skip
