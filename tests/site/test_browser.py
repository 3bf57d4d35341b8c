"""Pages in a real browser: light and dark, wide and on a phone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.site.browser import View, looked_at
from tests.site.conftest import BuiltSite

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(
        "chromium" in os.environ.get("REACTIVE_KAFKA_WITHOUT", "").split(","), reason="left out"
    ),
]

PATHS = ("", "how-it-works/", "commits/", "configuration/", "api/outgoing/", "404.html")
"""Of each kind one page."""

WAYS = (("default", 1400), ("slate", 390))
"""Scheme and width. Axe takes seconds for a long page, so a page is seen in two ways."""


def axe(site: BuiltSite) -> bytes:
    """The script of axe, which is in the environment of the site."""
    (script,) = site.python.parents[1].glob("lib/*/site-packages/axe_playwright_python/axe.min.js")
    return script.read_bytes()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path or "home")
def test_a_page_can_be_used_by_everybody_and_fits_the_screen(
    site: BuiltSite, path: str, tmp_path: Path
) -> None:
    views = [View(path, *way) for way in WAYS]
    report, complaints = looked_at(site.folder, axe(site), views, tmp_path)
    assert len(report) == len(WAYS)
    for found in report:
        grave = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert grave == [], found["scheme"]
        assert found["overflow"] <= 0, f"the page is wider than {found['width']} pixels"
    assert complaints == ()


def test_a_page_that_few_can_use_would_be_found(site: BuiltSite, tmp_path: Path) -> None:
    bad = tmp_path / "site"
    bad.mkdir()
    (bad / "bad.html").write_text(
        "<!doctype html><html><head></head><body><img src='/x.png'>"
        "<script>throw new Error('broken')</script>"
        "<p style='color:#eee;background:#fff;width:900px'>pale</p></body></html>"
    )
    report, complaints = looked_at(bad, axe(site), [View("bad.html", "default", 390)], tmp_path)
    assert {"image-alt", "color-contrast", "html-has-lang"} <= {
        one["rule"] for one in report[0]["violations"]
    }
    assert report[0]["overflow"] > 400
    assert "broken" in complaints[0]
