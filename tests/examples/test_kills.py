"""What the drivers of services share: traffic that can be held, and processes that never stay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from examples.kills import Service, Traffic, cleaned_up
from tests.app.helpers import in_virtual_time


@in_virtual_time
async def test_while_traffic_is_held_all_that_was_sent_is_confirmed_and_nothing_more_is_sent() -> (
    None
):
    began, confirmed = list[None](), list[None]()

    async def send() -> None:
        began.append(None)
        await asyncio.sleep(0.3)
        confirmed.append(None)

    traffic = Traffic(send, per_second=5.0, draw=Random(1))
    sending = asyncio.create_task(traffic.keep_sending())
    await asyncio.sleep(10)
    async with traffic.held():
        before = len(began)
        assert before == len(confirmed) > 0
        await asyncio.sleep(10)
        assert len(began) == before
    await asyncio.sleep(10)
    assert len(began) > before
    traffic.is_over = True
    await sending
    assert len(began) == len(confirmed)


def test_after_a_timeout_services_have_ended_and_what_they_said_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "service.log"
    log.write_text("what it said\n")
    service = Service("nothing:app", tmp_path, {}, log)
    with pytest.raises(TimeoutError), cleaned_up([service]):
        service.start()
        raise TimeoutError("too long")
    with pytest.raises(RuntimeError, match="the service has ended"):
        service.kill()
    assert "what it said" in capsys.readouterr().err
