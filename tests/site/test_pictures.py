"""The pictures of the documentation are what their command draws, and can be read by everybody."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from docs_tools.markdown import page_of_text
from docs_tools.pictures.__main__ import FOLDER, PICTURES
from docs_tools.pictures.canvas import INKS, KINDS
from docs_tools.repository import text_pages
from tests.http.page_screenshots import NAMES
from tests.pages import ROOT

SVG = "{http://www.w3.org/2000/svg}"
WIDTH_OF_A_LETTER = 6.9
"""Of the font on average, in pixels; wider than most."""


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_make_docs_pictures_draws(name: str) -> None:
    drawn = PICTURES[name]()
    assert (FOLDER / f"{name}.svg").read_text() == drawn, "run make docs-pictures"


def test_every_picture_is_drawn_and_on_a_page() -> None:
    kept = {path.stem for path in FOLDER.glob("*")}
    texts = [(ROOT / file).read_text() for file in text_pages()]
    shown = {name for text in texts for name in re.findall(r"pictures/([\w-]+)\.svg", text)}
    assert kept == set(PICTURES)
    assert kept - shown == set()


def test_every_screenshot_is_taken_by_the_command_and_on_a_page() -> None:
    kept = {path.stem for path in (ROOT / "docs" / "screenshots").glob("*")}
    texts = [(ROOT / file).read_text() for file in text_pages()]
    shown = {name for text in texts for name in re.findall(r"screenshots/([\w-]+)\.png", text)}
    assert kept == set(NAMES), "run make docs-pictures"
    assert shown == kept


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_title_and_its_text_stays_within(name: str) -> None:
    root = ET.fromstring(PICTURES[name]())
    width = float(root.attrib["width"])
    height = float(root.attrib["height"])
    assert root.find(f"{SVG}title") is not None
    for element in root.iter(f"{SVG}text"):
        long = len(element.text or "") * WIDTH_OF_A_LETTER
        x = float(element.attrib["x"])
        left = {"start": x, "middle": x - long / 2, "end": x - long}[element.attrib["text-anchor"]]
        assert left >= 0, element.text
        assert left + long <= width, element.text
        assert 10 <= float(element.attrib["y"]) <= height, element.text


def contrast(one: str, other: str) -> float:
    """How much two colours differ in brightness, as WCAG 2 defines it."""
    brightness = []
    for colour in (one, other):
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        brightness.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(brightness) + 0.05) / (min(brightness) + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_colour(scheme: int) -> None:
    grounds = [INKS["paper"][scheme], *(kind[scheme][0] for kind in KINDS.values())]
    assert [ground for ground in grounds if contrast(INKS["ink"][scheme], ground) < 4.5] == []
    assert contrast(INKS["soft"][scheme], INKS["paper"][scheme]) >= 4.5


def test_a_picture_in_a_page_follows_the_switch_of_the_page() -> None:
    page = page_of_text("# A\n\n![A bar of offsets](pictures/commits.svg)\n", "docs/a.md")
    assert 'aria-label="A bar of offsets"' in page
    assert '[data-md-color-scheme="slate"] .drawing{--paper' in page
    assert "prefers-color-scheme" not in page


def test_every_picture_has_alternative_text() -> None:
    without = [file for file in text_pages() if re.search(r"!\[\s*\]\(", (ROOT / file).read_text())]
    assert without == []
