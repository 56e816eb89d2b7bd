"""What docs/site_hooks.py does with pages on their way to the site."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def hooks():
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_short_code_is_not_broken(hooks):
    html = f"<p><code>--most-tasks</code> and <code>{'long ' * 20}</code></p>"
    changed = hooks.on_page_content(html, None, None, None)
    assert changed == html.replace("<code>--most", '<code class="whole">--most')
