"""The Markdown of one page of the site, made from the Markdown of a code host. Pure."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from docs_tools.repository import (
    LANGUAGES,
    ROOT,
    with_links_of_the_site,
)

DESCRIPTION_LENGTH = 160

_NAMED_BLOCK = re.compile(r"^<!-- file: (\S+) -->\n(```\w+)$", re.MULTILINE)
_API = re.compile(r"^<!-- api: ([\w.]+)(?: (only|without) ([\w ]+))? -->$", re.MULTILINE)
_CODE_HOST = re.compile(r"^<!-- on a code host -->\n.*?^<!-- everywhere -->\n", re.M | re.S)
_PICTURE = re.compile(r"^!\[([^\]]+)\]\(([^)\s]*pictures/[\w-]+\.svg)\)$", re.MULTILINE)
_NO_PROSE = re.compile(r"\s*(#|<|```|\||!\[|[-*] |\d+\. |>)")


def page_of_text(text: str, file: str) -> str:
    """Return the page of a Markdown file of the repository.

    Pictures of ours become a part of the page, so that they follow its colours. These comments mean
    something:

    - ``<!-- file: app.py -->`` before a block: its title.
    - ``<!-- api: NAME -->``: the docstrings of NAME. ``<!-- api: NAME only a b -->`` shows these
      members, ``<!-- api: NAME without a constructor -->`` leaves some out.
    - ``<!-- on a code host -->`` ... ``<!-- everywhere -->``: a text that the site leaves out.
    """
    description = description_of(text)
    text = _NAMED_BLOCK.sub(r'\2 title="\1"', text)
    text = _CODE_HOST.sub("", text)
    text = _API.sub(_docstrings_of, text)
    text = with_links_of_the_site(text, file)
    # Last, so that nothing looks for links in a drawing.
    text = _PICTURE.sub(lambda match: _drawn(match, file), text)
    return _front_matter(file, description) + text


def page_of_source(text: str, file: str) -> str:
    """Return the page that shows a source."""
    # Longer than any fence within the source.
    fence = "`" * max([3, *(len(marks) + 1 for marks in re.findall(r"`{3,}", text))])
    language = LANGUAGES[Path(file).suffix]
    matter = _front_matter(file, f"The source of {file}.", is_searched=False)
    return f"{matter}# {Path(file).name}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def description_of(text: str) -> str:
    """Return the first sentences of a page as plain text, for search engines and previews."""
    for paragraph in re.split(r"\n\s*\n", text):
        if _NO_PROSE.match(paragraph):
            continue
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
        # Zensical writes it into an attribute as it is.
        return _shortened(re.sub(r"[`*]", "", plain).replace('"', "'"))
    return ""


def title_of(text: str) -> str:
    """Return the first heading of a page as plain text."""
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return re.sub(r"[`*]", "", heading[1]) if heading else ""


def _shortened(text: str) -> str:
    """Keep whole sentences up to the limit; at least one, cut after a word."""
    kept = ""
    for sentence in re.split(r"(?<=[.:]) ", text):
        if kept and len(kept) + len(sentence) >= DESCRIPTION_LENGTH:
            break
        kept = f"{kept} {sentence}".strip()
    if len(kept) > DESCRIPTION_LENGTH:
        kept = kept[: DESCRIPTION_LENGTH - 1].rpartition(" ")[0] + "…"
    return kept


def _front_matter(file: str, description: str, *, is_searched: bool = True) -> str:
    quoted = description.replace("\\", "\\\\").replace('"', '\\"')
    lines = ["---", f'description: "{quoted}"', f"file: {file}"]
    if not is_searched:
        # A search finds the pages about the examples, not each line of their sources.
        lines += ["search:", "  exclude: true"]
    return "\n".join([*lines, "---", "", ""])


def _docstrings_of(match: re.Match[str]) -> str:
    lines = [f"::: {match[1]}"]
    members = (match[3] or "").split()
    if members:
        lines.append("    options:")
    if match[2] == "only":
        lines.append(f"      members: [{', '.join(members)}]")
    elif match[2] == "without":
        if "constructor" in members:
            members.remove("constructor")
            lines.append("      merge_init_into_class: false")
        hidden = ", ".join(f'"!^{member}$"' for member in ["_.*", *members])
        lines.append(f"      filters: [{hidden}]")
    return "\n".join(lines)


def _drawn(match: re.Match[str], file: str) -> str:
    alt = match[1].replace('"', "&quot;")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(file), match[2]))
    drawing = (ROOT / path).read_text(encoding="utf-8").replace("\n", "")
    drawing = drawing.replace('role="img"', f'role="img" aria-label="{alt}"', 1)
    # The site has a switch between light and dark, which the media query does not know.
    drawing = re.sub(
        r"@media\(prefers-color-scheme:dark\)\{\.drawing(\{.*?\})\}",
        r'[data-md-color-scheme="slate"] .drawing\1',
        drawing,
    )
    return f'<figure class="picture">{drawing}</figure>'
