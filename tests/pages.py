"""The pages of the documentation, taken apart: code blocks, code spans, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("README.md"),
    ]
)

_BLOCK = re.compile(r"(?:^<!-- file: (\S+) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A code block; ``file`` is the name that a comment before it gives it."""

    page: Path
    line: int
    language: str
    text: str
    file: str | None

    @property
    def where(self) -> str:
        """For test ids and tracebacks."""
        return f"{name(self.page)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Span:
    """Code within a line, and the heading that it stands under."""

    page: Path
    heading: str
    text: str

    @property
    def where(self) -> str:
        """For failures."""
        return f"{name(self.page)}, {self.heading!r}: `{self.text}`"


def name(page: Path) -> str:
    """A page as people call it."""
    return page.relative_to(ROOT).as_posix()


def page(path: str) -> Path:
    """A page by its name."""
    return ROOT / path


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The code blocks of a page, of one language or of all."""
    text = page.read_text()
    found = [
        Block(page, text.count("\n", 0, match.start(3)), match[2], match[3], match[1])
        for match in _BLOCK.finditer(text)
    ]
    return [block for block in found if language in (None, block.language)]


def spans(page: Path) -> Iterator[Span]:
    """The code spans of a page, outside of blocks."""
    for heading, text in _sections(page):
        for match in _SPAN.finditer(text):
            yield Span(page, heading, match[1].replace("\\|", "|"))


def links(page: Path) -> list[str]:
    """Where the links of a page lead, those into the web aside."""
    found = [target for _, text in _sections(page) for target in _LINK.findall(_SPAN.sub("", text))]
    return [target for target in found if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading, _ in _sections(page)
    }


def _sections(page: Path) -> Iterator[tuple[str, str]]:
    """heading -> the text under it, up to the next heading of any level."""
    text = _BLOCK.sub("", page.read_text())
    found = list(_HEADING.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=True):
        yield match[2], text[match.end() : end]
