"""Lays out what the site is built from in build/: its pages, and the configuration.

``python -m docs_tools.stage`` does it once. Files that did not change are not written again, so a
server that watches the folder rebuilds only pages that changed.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from docs_tools.markdown import description_of, page_of_source, page_of_text
from docs_tools.repository import ROOT, file_of, place_of, source_pages, text_pages

TARGET = ROOT / "build"
FOLDERS = ("docs", "overrides")
"""What is written there belongs to this module. Other files of build/ do not."""

VERSION = "MIKE_DOCS_VERSION"
"""The environment variable that says which version a site is for. Zensical reads it, too."""

OTHER_FILES = {
    "docs_tools/overrides": Path("overrides"),
    "docs/images": Path("docs/images"),
    "docs/javascripts": Path("docs/javascripts"),
    "docs/pictures": Path("docs/pictures"),
    "docs/stylesheets": Path("docs/stylesheets"),
}
"""Files and folders that are copied as they are: from the repository -> to the target."""


def staged() -> dict[str, bytes]:
    """Return what the site is built from: place in the target -> content."""
    found: dict[str, bytes] = {}
    for file in text_pages():
        page = page_of_text((ROOT / file).read_text(encoding="utf-8"), file)
        found[f"docs/{place_of(file)}"] = page.encode()
    for file in source_pages():
        page = page_of_source((ROOT / file).read_text(encoding="utf-8"), file)
        found[f"docs/{place_of(file)}"] = page.encode()
    found["mkdocs.yml"] = configuration().encode()
    for source, place in OTHER_FILES.items():
        for path in _files(ROOT / source):
            inner = path.relative_to(ROOT / source)
            found[(place / inner).as_posix()] = path.read_bytes()
    return found


def configuration() -> str:
    """Return mkdocs.yml with the pages of its navigation as the sections of llms.txt.

    The site of one version has a list of the others.
    """
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    sections: dict[str, list[dict[str, str]]] = {}
    for section, place in navigation(text):
        page = (ROOT / file_of(place)).read_text(encoding="utf-8")
        sections.setdefault(section, []).append({place: description_of(page)})
    # JSON is YAML.
    filled = json.dumps(sections, ensure_ascii=False)
    text = text.replace("sections: {}", f"sections: {filled}", 1)
    if VERSION in os.environ:
        text = text.replace("\nextra:\n", "\nextra:\n  version:\n    provider: mike\n", 1)
    return text


def navigation(config: str) -> list[tuple[str, str]]:
    """Return the section and the place of each page in the navigation of mkdocs.yml, in order."""
    nav = config.partition("\nnav:\n")[2].partition("\n\n")[0]
    found = []
    section = ""
    for line in nav.splitlines():
        if heading := re.match(r"  - (\w+):$", line):
            section = heading[1]
        elif page := re.match(r" +- (\S+\.md)$", line):
            found.append((section, page[1]))
    return found


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


def write(target: Path = TARGET) -> int:
    """Write the files that changed, and remove those that are gone. Return how many changed."""
    files = staged()
    changed = 0
    for place, content in files.items():
        path = target / place
        if path.exists() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        changed += 1
    for folder in FOLDERS:
        for path in _files(target / folder):
            if path.relative_to(target).as_posix() not in files:
                path.unlink()
                changed += 1
    return changed


if __name__ == "__main__":
    write()
