"""What `run` says when a function of the application raises before the channels start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.process import Ended, cli

HOOK = """\
from reactive_kafka import App

app = App({"incoming": {"orders": {"group_id": "billing"}}, "http": {"enabled": False}})

@app.on_start
async def boot() -> None:
    connect()

def connect() -> None:
    raise RuntimeError("no database")

@app.incoming("orders")
async def order(value: bytes) -> None: ...
"""
BLOCKING = HOOK.replace("async def boot", "def boot")
DEPENDENCY = """\
from typing import Annotated

from reactive_kafka import App, Depends

app = App({"incoming": {"orders": {"group_id": "billing"}}, "http": {"enabled": False}})

def pool() -> int:
    connect()
    return 1

def connect() -> None:
    raise RuntimeError("no database")

@app.incoming("orders")
async def order(value: bytes, pool: Annotated[int, Depends(pool, scope="app")]) -> None: ...
"""
KINDS = pytest.mark.parametrize(
    ("code", "who"),
    [
        (HOOK, "on_start hook service.boot ({path}:5)"),
        (BLOCKING, "on_start hook service.boot ({path}:5)"),
        (DEPENDENCY, "dependency service.pool ({path}:7)"),
    ],
    ids=["hook", "blocking hook", "dependency"],
)


def run(code: str, folder: Path, *options: str) -> Ended:
    (folder / "service.py").write_text(code)
    return cli("run", "service:app", *options, cwd=folder)


@KINDS
def test_a_line_says_which_function_raised_what_and_only_its_own_frames_follow(
    code: str, who: str, tmp_path: Path
) -> None:
    ended = run(code, tmp_path)
    first, *rest = [
        line for line in ended.err.splitlines() if " INFO " not in line and " WARNING " not in line
    ]
    assert ended.code == 1
    assert (
        first
        == f"Error: {who.format(path=tmp_path / 'service.py')} raised RuntimeError: no database"
    )
    frames = [line for line in rest if line.startswith("  File ")]
    assert len(frames) == 2
    assert all(str(tmp_path) in frame for frame in frames)


@KINDS
def test_with_json_logs_it_is_one_record(code: str, who: str, tmp_path: Path) -> None:
    ended = run(code, tmp_path, "--log-format", "json")
    lines = list(map(json.loads, ended.err.splitlines()))
    (told,) = [line for line in lines if line["level"] == "ERROR"]
    assert ended.code == 1
    assert (
        told["message"]
        == f"{who.format(path=tmp_path / 'service.py')} raised RuntimeError: no database"
    )
    assert told["exception"].count("File ") == 2
