"""Reads the built site and prints what is wrong with it, one line for each problem.

A page must be valid HTML with one first heading and a description. Its links must lead to a page
and an anchor of the site, or into the web. Nothing that a browser loads may come from elsewhere:
the site works without a network, and no other host hears of its readers.

    python -m docs_tools.check
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import html5lib

from docs_tools.repository import ROOT, SITE_ADDRESS

SITE = ROOT / "build" / "site"
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements whose target a browser loads -> the attribute that names it."""

NOT_LOADED = {"canonical", "prev", "next", "edit", "alternate"}
"""Kinds of ``link`` that a browser does not load."""


@dataclass(frozen=True, slots=True)
class BuiltPage:
    """One page of the site, parsed.

    Attributes:
        address: Where it is on the site.
    """

    address: str
    html: ET.Element
    errors: tuple[str, ...]

    def all(self, tag: str) -> Iterator[ET.Element]:
        """The elements of one kind."""
        return self.html.iter(f"{{http://www.w3.org/1999/xhtml}}{tag}")

    def ids(self) -> Counter[str]:
        """How often each id is there."""
        return Counter(
            element.attrib["id"] for element in self.html.iter() if "id" in element.attrib
        )


def read(site: Path) -> dict[str, BuiltPage]:
    """Return the pages of the site by their addresses."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        place = path.relative_to(site).as_posix()
        address = SITE_ADDRESS + re.sub(r"(^|/)index\.html$", r"\1", place)
        parser = html5lib.HTMLParser()
        html = parser.parse(path.read_text(encoding="utf-8"))
        errors = tuple(f"line {line}: {code} {data}" for (line, _), code, data in parser.errors)
        pages[address] = BuiltPage(address, html, errors)
    return pages


def problems(site: Path) -> Iterator[str]:
    """Return what is wrong with the pages of the site."""
    pages = read(site)
    ids = {address: page.ids() for address, page in pages.items()}
    for page in pages.values():
        name = page.address.removeprefix(SITE_ADDRESS) or "index"
        yield from (f"{name}: {problem}" for problem in _problems_of(page))
        for target in _targets(page):
            problem = _problem_of_link(target, ids, site)
            if problem:
                yield f"{name}: {problem}"


def _problems_of(page: BuiltPage) -> Iterator[str]:
    yield from page.errors
    yield from (f"id {name!r} is there {n} times" for name, n in page.ids().items() if n > 1)
    if len(list(page.all("h1"))) != 1:
        yield f"{len(list(page.all('h1')))} first headings"
    named = {element.attrib.get("name"): element for element in page.all("meta")}
    if "404" not in page.address and not named["description"].attrib["content"]:
        yield "no description"
    for tag, attribute in LOADED.items():
        for element in page.all(tag):
            target = urljoin(page.address, element.attrib.get(attribute, ""))
            is_loaded = element.attrib.get("rel") not in NOT_LOADED
            if is_loaded and not target.startswith((SITE_ADDRESS, "data:")):
                yield f"a browser loads {target}"


def _targets(page: BuiltPage) -> set[str]:
    return {
        urljoin(page.address, element.attrib["href"])
        for tag in ("a", "link")
        for element in page.all(tag)
        if "href" in element.attrib
    }


def _problem_of_link(target: str, ids: dict[str, Counter[str]], site: Path) -> str | None:
    if not target.startswith(SITE_ADDRESS):
        return None if urlsplit(target).scheme in ("https", "mailto") else f"a link to {target}"
    address, _, anchor = target.partition("#")
    if address in ids:
        anchors = ids[address]
        is_there = not anchor or unquote(anchor) in anchors or anchor.startswith("__")
        return None if is_there else f"no such anchor: {target}"
    is_file = (site / unquote(address.removeprefix(SITE_ADDRESS))).is_file()
    return None if is_file else f"no such page: {target}"


if __name__ == "__main__":
    found = list(problems(SITE))
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)
