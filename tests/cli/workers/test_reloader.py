"""What ``run --reload`` watches."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from reactive_kafka.cli.workers.reloader import Reloader


async def test_a_folder_that_cannot_be_watched_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = tmp_path / "gone"
    [watch] = Reloader(["service:app"], gone, [])._watches()
    await asyncio.wait_for(watch, 10)
    [said] = caplog.messages
    assert said.startswith(f"changes in {gone} are not noticed: FileNotFoundError: ")


async def test_a_signal_while_a_process_is_being_started_ends_that_one(tmp_path: Path) -> None:
    """It has a session of its own, so a Ctrl-C reaches it only through its parent."""
    (tmp_path / "service.py").write_text("import time\ntime.sleep(60)\n")
    reloader = Reloader([f"--app-dir={tmp_path}", "service:app"], tmp_path, [])
    running = asyncio.create_task(reloader.run())
    await asyncio.sleep(0)
    assert reloader._process is None
    reloader._signalled(signal.SIGINT)
    assert await asyncio.wait_for(running, 20) == 0
