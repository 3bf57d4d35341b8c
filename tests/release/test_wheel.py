"""The wheel, installed into a fresh environment of each Python that this machine has."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.release.conftest import Dist
from tests.release.pythons import Python, make_environment, pythons, run

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LOCK = ROOT / "scripts/demo.txt"
FOUND = pythons()

pytestmark = pytest.mark.release


@pytest.mark.parametrize("python", FOUND, ids=str)
def test_it_runs_where_nothing_else_is_installed(
    python: Python, dist: Dist, tmp_path: Path
) -> None:
    commands = make_environment(python, tmp_path / "venv", LOCK, dist.wheel)
    said = run(commands / "reactive-kafka", "--version", cwd=tmp_path)
    assert said == f"reactive-kafka {VERSION}\n"
    by_module = run(commands / "python", "-m", "reactive_kafka", "--version", cwd=tmp_path)
    assert by_module == said

    for file in ("hello.py", "reactive-kafka.toml"):
        shutil.copy(ROOT / "examples/hello" / file, tmp_path)
    assert "greetings" in run(commands / "reactive-kafka", "check", "hello:app", cwd=tmp_path)
    run(commands / "reactive-kafka", "dashboards", "--to", "monitoring", cwd=tmp_path)
    assert (
        "ReactiveKafkaNotReady" in (tmp_path / "monitoring/reactive-kafka-alerts.yml").read_text()
    )
    names = (
        "import reactive_kafka as r; print([n for n in r.__all__ if getattr(r, n, None) is None])"
    )
    assert run(commands / "python", "-W", "error", "-c", names, cwd=tmp_path) == "[]\n"

    # The demo takes long, and one Python is enough to see that its files are in the wheel.
    if python == FOUND[0]:
        demo = run(commands / "reactive-kafka", "demo", "--seconds", "8", cwd=tmp_path)
        assert "counted without Spark" in demo
        assert demo.splitlines()[-1] == "all of it holds"
