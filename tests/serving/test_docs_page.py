"""The page at /docs in a browser."""

import pytest

from tests.demo.conftest import a_browser
from tests.serving.test_process import process


@pytest.fixture(scope="module")  # an imported fixture would live to the end of the session, and the demo's tests fail
def browser():
    with a_browser() as launched:
        yield launched


@pytest.mark.slow
def test_routes_can_be_tried_on_the_page(browser, learner_file):
    with process(learner_file / "curves.cavia") as (_, url):
        page, said, asked = browser.new_page(), [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{url}/docs")
        page.wait_for_selector("main > details:nth-child(8)")
        adapt = page.locator("main > details", has_text="POST/adapt").first
        adapt.locator("summary").first.click()
        adapt.locator("textarea").fill('{"tasks": {"a/b": {"x": [[1, 2]], "y": [[1]]}}}')
        adapt.locator("button").click()
        adapt.locator("pre", has_text="200").first.wait_for()
        get = page.locator("main > details", has_text="GET/tasks/{id} ").first
        get.locator("summary").first.click()
        get.locator("input").fill("a/b")
        get.locator("button").click()
        get.locator("pre", has_text='"id":"a/b"').wait_for()
        page.close()
    assert not said
    assert all(one.startswith((url, "data:")) for one in asked)
