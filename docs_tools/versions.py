"""Puts the site of one version next to those of others.

``python -m docs_tools.versions 0.1 FOLDER`` does it, after ``make docs``. The folder gets ``0.1/``
with the site, ``versions.json`` for the list of versions on each page, ``latest/`` with the newest
release, and ``index.html``, which leads there.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from packaging.version import Version

from docs_tools.repository import ROOT

LATEST = "latest"
REDIRECT = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>reactive_kafka</title>
<meta http-equiv="refresh" content="0; url={LATEST}/">
<link rel="canonical" href="{LATEST}/">
<p><a href="{LATEST}/">Documentation of the latest version</a></p>
</html>
"""


def add(site: Path, version: str, folder: Path) -> None:
    """Put the built *site* of *version* into *folder*; an older site of it is replaced.

    Raises:
        packaging.version.InvalidVersion: *version* is none.
    """
    Version(version)
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / version, site)
    versions = sorted(
        (path.name for path in folder.iterdir() if path.is_dir() and path.name != LATEST),
        key=Version,
        reverse=True,
    )
    latest = newest_release(versions)
    _replace(folder / LATEST, folder / latest)
    listed = [
        {"version": one, "title": one, "aliases": [LATEST] if one == latest else []}
        for one in versions
    ]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(REDIRECT, encoding="utf-8")


def newest_release(versions: list[str]) -> str:
    """Return the highest version that is no candidate, or the highest of all if all are."""
    releases = [version for version in versions if not Version(version).is_prerelease]
    return max(releases or versions, key=Version)


def _replace(target: Path, source: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


if __name__ == "__main__":
    add(ROOT / "build" / "site", sys.argv[1], Path(sys.argv[2]))
