"""What ``run --reload`` watches."""

from __future__ import annotations

import asyncio
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
