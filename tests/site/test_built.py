"""The built site: no warning, valid pages, links that lead somewhere, correct spelling."""

from __future__ import annotations

import json
import re
import subprocess

from docs_tools import stage
from docs_tools.repository import ROOT, SITE_ADDRESS, place_of, source_pages, text_pages
from tests.site.conftest import BuiltSite

SPELLED = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples")


def test_the_site_is_built_without_a_warning(site: BuiltSite) -> None:
    assert "No issues found" in site.said
    assert "warning" not in site.said.lower()


def test_every_page_is_valid_and_every_link_and_anchor_leads_somewhere(site: BuiltSite) -> None:
    done = subprocess.run(
        [site.python, "-m", "docs_tools.check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_words_are_spelled_right(site: BuiltSite) -> None:
    done = subprocess.run(
        [site.python.with_name("codespell"), *SPELLED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""


def test_every_page_has_a_place_on_the_site(site: BuiltSite) -> None:
    for file in [*text_pages(), *source_pages()]:
        place = re.sub(r"(^|/)README\.md$", r"\1index.md", place_of(file))
        folder = place.removesuffix("index.md") if place.endswith("index.md") else place[:-3]
        assert (site.folder / folder / "index.html").is_file(), file


def test_a_search_covers_the_pages_and_not_each_line_of_the_examples(site: BuiltSite) -> None:
    items = json.loads((site.folder / "search.json").read_text())["items"]
    found = {item["location"].partition("#")[0] for item in items if "max_uncommitted" in str(item)}
    assert {"configuration/", "commits/"} <= found
    assert [item["location"] for item in items if ".py/" in item["location"]] == []


def test_the_site_has_a_map_and_a_page_for_what_is_not_found(site: BuiltSite) -> None:
    found = re.findall(r"<loc>(.*?)</loc>", (site.folder / "sitemap.xml").read_text())
    assert f"{SITE_ADDRESS}commits/" in found
    assert (site.folder / "404.html").is_file()


def test_programs_get_every_page_of_the_navigation_as_text(site: BuiltSite) -> None:
    index = (site.folder / "llms.txt").read_text()
    whole = (site.folder / "llms-full.txt").read_text()
    places = [place for _, place in stage.navigation((ROOT / "mkdocs.yml").read_text())]
    assert index.count("\n- [") == len(places)
    assert "## Reference" in index
    assert "ack_up_to" in whole, "the reference of the API is there, too"


def test_the_address_of_the_site_is_that_of_the_configuration() -> None:
    assert f"site_url: {SITE_ADDRESS}\n" in (ROOT / "mkdocs.yml").read_text()
