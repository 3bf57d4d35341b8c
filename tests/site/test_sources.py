"""What the site is made from: which files are pages, where links lead, what a page becomes."""

from __future__ import annotations

import pytest

from docs_tools import stage
from docs_tools.markdown import description_of, page_of_source, page_of_text
from docs_tools.repository import (
    REPOSITORY,
    ROOT,
    place_of,
    text_pages,
    with_links_of_the_site,
)

CONFIG = (ROOT / "mkdocs.yml").read_text()
NAV = [place for _, place in stage.navigation(CONFIG)]
SECTIONS = ["Start", "Guide", "Operate", "Reference", "Move", "Inside"]


def test_every_page_is_once_in_the_navigation() -> None:
    pages = {place_of(file) for file in text_pages()}
    assert sorted(NAV) == sorted(set(NAV)), "a page is there twice"
    assert pages - set(NAV) == set(), "add these pages to nav in mkdocs.yml"
    assert set(NAV) - pages == set(), "mkdocs.yml names pages that do not exist"


def test_the_navigation_has_six_sections() -> None:
    assert list(dict.fromkeys(section for section, _ in stage.navigation(CONFIG))) == SECTIONS


def test_the_address_of_the_repository_is_that_of_the_configuration() -> None:
    assert f"repo_url: {REPOSITORY}\n" in CONFIG


@pytest.mark.parametrize(
    ("file", "target", "expected"),
    [
        ("docs/commits.md", "failures.md#retries", "failures.md#retries"),
        ("docs/commits.md", "../examples/demo/README.md", "examples/demo/README.md"),
        ("docs/commits.md", "../examples/demo", "examples/demo/README.md"),
        ("docs/commits.md", "../benchmarks/results.md", "benchmarks/results.md"),
        ("docs/howto/README.md", "../commits.md", "../commits.md"),
        ("docs/howto/README.md", "../../examples/hello/hello.py", "../examples/hello/hello.py.md"),
        ("examples/hello/README.md", "../../docs/commits.md", "../../commits.md"),
        ("examples/hello/README.md", "hello.py", "hello.py.md"),
        ("CHANGELOG.md", "docs/commits.md", "commits.md"),
        ("docs/commits.md", "../Makefile", f"{REPOSITORY}/blob/main/Makefile"),
        ("docs/commits.md", "../tests/site", f"{REPOSITORY}/tree/main/tests/site"),
        ("docs/commits.md", "https://example.org/a", "https://example.org/a"),
        ("docs/commits.md", "#top", "#top"),
        ("docs/commits.md", "no-such-page.md", "no-such-page.md"),
    ],
)
def test_a_link_leads_to_a_page_or_to_the_repository(file: str, target: str, expected: str) -> None:
    assert with_links_of_the_site(f"[text]({target})", file) == f"[text]({expected})"


def test_links_in_code_stay_as_they_are() -> None:
    text = "`[a](../Makefile)` and\n\n```md\n[a](../Makefile)\n```\n"
    assert with_links_of_the_site(text, "docs/commits.md") == text


def test_code_is_the_text_of_a_link() -> None:
    text = "[`make`](../Makefile)"
    assert with_links_of_the_site(text, "docs/a.md") == f"[`make`]({REPOSITORY}/blob/main/Makefile)"


def test_the_name_of_a_file_is_the_title_of_its_block() -> None:
    page = page_of_text("# A\n\n<!-- file: app.py -->\n```python\n1\n```\n", "docs/a.md")
    assert '\n```python title="app.py"\n1\n' in page


def test_a_source_that_has_fences_is_shown_as_a_whole() -> None:
    page = page_of_source('"""\n```python\n1\n```\n"""\n', "examples/hello/hello.py")
    assert page.endswith('````python\n"""\n```python\n1\n```\n"""\n````\n')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A\n\nOne `two` [three](b.md).\n\nMore.\n", "One two three."),
        ("# A\n\n| a |\n|---|\n\n- list\n\nText.", "Text."),
        ("# A\n\n" + "word " * 50, ("word " * 31)[:-1] + "…"),
        ("# A\n", ""),
    ],
)
def test_the_description_of_a_page_is_its_first_sentences(text: str, expected: str) -> None:
    assert description_of(text) == expected


def test_every_page_has_a_description() -> None:
    without = [file for file in text_pages() if not description_of((ROOT / file).read_text())]
    assert without == []


def test_a_page_that_is_gone_is_removed_and_a_page_that_is_the_same_stays(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("staged")
    assert stage.write(folder) == len(stage.staged())
    (folder / "docs" / "gone.md").write_text("# Gone")
    assert stage.write(folder) == 1
    assert not (folder / "docs" / "gone.md").exists()
    assert stage.write(folder) == 0
