"""The sites of several versions stand in one folder, and the newest release is the latest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs_tools import stage, versions


def site_of(version: str, folder: Path) -> Path:
    site = folder / f"site-{version}"
    site.mkdir(exist_ok=True)
    (site / "index.html").write_text(version)
    return site


def listed(folder: Path) -> dict[str, list[str]]:
    """Version -> its other names, the newest version first."""
    found = json.loads((folder / "versions.json").read_text())
    return {one["version"]: one["aliases"] for one in found}


def test_the_newest_release_is_the_latest(tmp_path: Path) -> None:
    sites = tmp_path / "sites"
    for version in ("0.9", "0.10", "0.11rc1", "0.2"):
        versions.add(site_of(version, tmp_path), version, sites)
    assert listed(sites) == {"0.11rc1": [], "0.10": ["latest"], "0.9": [], "0.2": []}
    assert list(listed(sites)) == ["0.11rc1", "0.10", "0.9", "0.2"]
    assert (sites / "latest" / "index.html").read_text() == "0.10"
    assert 'url=latest/"' in (sites / "index.html").read_text()


def test_a_version_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    sites = tmp_path / "sites"
    first = site_of("0.1rc1", tmp_path)
    (first / "gone.html").write_text("gone")
    versions.add(first, "0.1rc1", sites)
    assert (sites / "latest" / "gone.html").exists(), "there is no release yet"

    (first / "gone.html").unlink()
    versions.add(first, "0.1rc1", sites)
    assert [path.name for path in (sites / "0.1rc1").iterdir()] == ["index.html"]
    assert [path.name for path in (sites / "latest").iterdir()] == ["index.html"]


def test_what_is_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="main"):
        versions.add(site_of("main", tmp_path), "main", tmp_path / "sites")
    assert not (tmp_path / "sites").exists()


def test_only_the_site_of_a_version_has_a_list_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(stage.VERSION, raising=False)
    assert "provider: mike" not in stage.configuration()
    monkeypatch.setenv(stage.VERSION, "0.1")
    assert "\nextra:\n  version:\n    provider: mike\n" in stage.configuration()
