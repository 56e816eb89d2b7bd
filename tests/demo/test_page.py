"""The page as a whole: on a phone, in the dark, and when the server is gone."""

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def phone(window, address):
    """The page on a narrow screen that is touched."""
    return window(address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)


def test_every_panel_has_a_title_words_and_a_place_in_the_contents(page):
    page.locator("#curves [data-part=legend] b").first.wait_for()
    titles = page.locator(".panel:visible h2").all_text_contents()
    assert titles == page.locator("#contents a").all_text_contents()
    assert titles[:2] == ["Curves", "The plane of tasks"]
    for panel in page.locator(".panel:visible").all():
        sentences = " ".join(panel.locator(".words p").text_content().split()).split(". ")
        assert len(sentences) <= 3, "three sentences say what to do"
        assert max(map(len, sentences)) <= 110, "and they are short"
    for listed in page.locator("#models li").all_text_contents():
        assert "tasks" in listed


def test_on_a_phone_nothing_is_cut_off_and_a_tap_places_a_point(phone):
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    phone.locator("#curves [data-part=clear]").tap()
    phone.locator("#curves .status").filter(has_text="No points yet").wait_for()
    phone.locator("#curves [data-part=plot] svg").tap(position={"x": 150, "y": 60})
    phone.locator("#curves .status").filter(has_text="1 point,").wait_for()
    small = phone.eval_on_selector_all(
        "button, select", "all => all.filter(one => one.offsetHeight && one.offsetHeight < 40).length"
    )
    assert not small, "buttons are large enough for a finger"


def test_colours_follow_the_system(page):
    def ground():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = ground()
    page.emulate_media(color_scheme="dark")
    assert ground() != light


def test_a_server_that_is_gone_is_said(phone):
    phone.route("**/api/**", lambda route: route.abort())
    phone.locator("#curves [data-part=clear]").tap()
    phone.locator("#trouble").filter(has_text="The server does not answer").wait_for()
