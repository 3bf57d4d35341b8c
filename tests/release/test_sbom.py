"""`make sbom` lists the parts of an installation."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.release.pythons import TOOLS, run

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "deploy/requirements.txt"

pytestmark = pytest.mark.release


def test_every_locked_package_is_listed_with_its_version_and_hashes(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    uv = (TOOLS / "uv", "--quiet")
    run(*uv, "venv", "--no-project", "--python", TOOLS / "python", tools, cwd=tmp_path)
    install = (*uv, "pip", "install", "--python", tools / "bin/python", "--no-deps")
    run(*install, "--require-hashes", "--requirement", ROOT / "scripts/tools.txt", cwd=tmp_path)
    # Make finds its environment ready, and installs nothing.
    (tools / ".ready").touch()
    run("make", "sbom", f"TOOLS_VENV={tools}", f"DIST={tmp_path}", cwd=ROOT)

    listed = json.loads((tmp_path / "reactive_kafka.cdx.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    described = listed["metadata"]["component"]
    assert (described["name"], described["version"]) == ("reactive-kafka", project["version"])
    parts = {(part["name"], part["version"]) for part in listed["components"]}
    assert parts == set(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))
    hashes = {
        each["content"]
        for part in listed["components"]
        for reference in part["externalReferences"]
        for each in reference.get("hashes", ())
    }
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", LOCK.read_text()))
