"""The demo served on a free port, and a browser to look at it."""

import re
import shutil
import threading
import time
from contextlib import contextmanager

import pytest

uvicorn = pytest.importorskip("uvicorn", reason='needs the extra "serve"')
LONG = 120_000  # milliseconds: a busy machine is no fault
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def address():
    """Where the page is served, by a thread of this process."""
    from cavia.demo.routes import application

    server = uvicorn.Server(uvicorn.Config(application(), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(60)


@pytest.fixture(scope="session")
def client():
    """Requests without a network."""
    from fastapi.testclient import TestClient

    from cavia.demo.routes import application

    with TestClient(application()) as made:
        yield made


@contextmanager
def a_browser():
    """Headless Chromium, the machine's or Playwright's own; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra dev")
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    with playwright.sync_playwright() as started:
        try:
            launched = started.chromium.launch(executable_path=executable, args=["--no-sandbox"], timeout=LONG)
        except playwright.Error as error:
            pytest.skip(f"there is no Chromium here ({str(error).splitlines()[0]})")
        yield launched
        launched.close()


@pytest.fixture(scope="package")  # while it is there, so is Playwright's event loop, in which no other can run
def browser():
    with a_browser() as launched:
        yield launched


@pytest.fixture
def window(browser):
    """window(address, prepare, **options): its page, when all panels show their first answers and move no more."""
    contexts = []

    def opened(address, prepare=lambda page: None, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(LONG)
        made = context.new_page()
        prepare(made)
        made.goto(address)
        made.locator(".panel:visible").first.wait_for()
        for panel in made.locator(".panel:visible").all():
            panel.locator(".status").filter(has_text=re.compile(r"\S")).wait_for()
        return made

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def page(window, address):
    """The page in a new window; at the end, it must have said no errors and asked no other host."""
    said, asked = [], []

    def listen(opened):
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("request", lambda request: asked.append(request.url))

    yield window(address, listen, viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    assert not said
    assert asked
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)
