"""Which files of the repository are pages of the site, and where links between files lead.

On a code host a link names a file of the repository. On the site some of these files are pages: all
of ``docs/``, the examples with their sources, and a few files at the top. Links to other files lead
to the repository.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = "docs/"

REPOSITORY = "https://github.com/reactive-kafka/reactive-kafka"
"""The same as ``repo_url`` of mkdocs.yml; a test holds that."""

SITE_ADDRESS = "https://reactive-kafka.github.io/reactive-kafka/"
"""The same as ``site_url`` of mkdocs.yml. Links of the page for what is not found are absolute."""

TEXT_PAGES = (
    "docs/**/*.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/*.md",
    "examples/README.md",
    "examples/*/README.md",
)
"""Markdown that becomes a page."""

SOURCE_PAGES = ("examples/**/*.py", "examples/**/*.toml", "examples/**/*.sql")
"""Sources that become a page with their text, in colour."""

LANGUAGES = {".py": "python", ".toml": "toml", ".sql": "sql"}

_FENCE = re.compile(r"^(?P<mark> *(?:`{3,}|~{3,})).*?^(?P=mark) *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s]+)")


def text_pages() -> list[str]:
    """The Markdown files that are pages, as paths from the root of the repository."""
    return _matching(TEXT_PAGES)


def source_pages() -> list[str]:
    """The sources that are pages, as paths from the root of the repository."""
    return _matching(SOURCE_PAGES)


def place_of(file: str) -> str:
    """Where the site keeps a file of the repository. ``docs/`` is the site's root."""
    if Path(file).suffix in LANGUAGES:
        return f"{file}.md"
    return file.removeprefix(DOCS)


def file_of(place: str) -> str:
    """The file of the repository behind a place of the site that has Markdown."""
    return place if place in text_pages() else DOCS + place


def with_links_of_the_site(text: str, file: str) -> str:
    """Return the Markdown of *file* with its links as the site needs them.

    A link to a page leads to the page, a link to another file to the repository. Links that lead
    nowhere stay as they are: the strict build refuses them.
    """
    pages = {*text_pages(), *source_pages()}

    def replaced(match: re.Match[str]) -> str:
        return match[1] + _target(match[2], file, pages)

    return outside_of_code(text, lambda prose: _LINK.sub(replaced, prose))


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """Return *text* with its prose changed. Code blocks and code spans stay as they are."""
    done = []
    end = 0
    for fence in _FENCE.finditer(text):
        done.append(_outside_of_spans(text[end : fence.start()], change))
        done.append(fence[0])
        end = fence.end()
    done.append(_outside_of_spans(text[end:], change))
    return "".join(done)


def _outside_of_spans(text: str, change: Callable[[str], str]) -> str:
    # A code span may be the text of a link. So spans are replaced by their numbers for a moment.
    spans: list[str] = []

    def aside(match: re.Match[str]) -> str:
        spans.append(match[0])
        return f"\0{len(spans) - 1}\0"

    changed = change(_CODE.sub(aside, text))
    return re.sub("\0(\\d+)\0", lambda match: spans[int(match[1])], changed)


def _target(target: str, file: str, pages: set[str]) -> str:
    path, hash_sign, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return target
    named = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
    if f"{named}/README.md" in pages:
        named = f"{named}/README.md"
    if named in pages or (named.startswith(DOCS) and (ROOT / named).is_file()):
        here = posixpath.dirname(place_of(file))
        return posixpath.relpath(place_of(named), here or ".") + hash_sign + anchor
    if (ROOT / named).exists():
        kind = "tree" if (ROOT / named).is_dir() else "blob"
        return f"{REPOSITORY}/{kind}/main/{named}{hash_sign}{anchor}"
    return target


def _matching(patterns: tuple[str, ...]) -> list[str]:
    return sorted(
        path.relative_to(ROOT).as_posix()
        for pattern in patterns
        for path in ROOT.glob(pattern)
        if "__pycache__" not in path.parts
    )
