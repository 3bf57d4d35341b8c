"""The notices of examples/notices and their remote API, in virtual time and under kills."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from examples.notices.drive import impatient, too_fast
from examples.notices.notices import app, remote
from examples.notices.remote import Call, Remote, application
from reactive_kafka.testing import TestApp
from tests.examples.driven import driven


@asynccontextmanager
async def running(api: Remote) -> AsyncIterator[TestApp]:
    """The service, in front of an API in the same process."""
    transport = httpx.ASGITransport(application(api))
    app.dependency_overrides[remote] = lambda: httpx.AsyncClient(
        transport=transport, base_url="http://remote"
    )
    try:
        async with TestApp(app) as test:
            yield test
    finally:
        app.dependency_overrides.clear()


async def send(test: TestApp, to: str, *texts: str, channel: str = "alarms") -> None:
    for text in texts:
        await test.send(channel, {"to": to, "text": text}, key=to, partition=0)


@pytest.mark.virtual_time
async def test_a_customer_gets_each_notice_once_and_in_order_whatever_the_api_does() -> None:
    api, texts = Remote(), ["1 (lost)", "2 (hang, away)", "3 (away, away, lost)", "4"]
    async with running(api) as test:
        await send(test, "ada", *texts)
        await test.settled(timeout=60)
        assert list(api.delivered.values()) == texts
        assert test.records("dead-letter-topic-alarms") == []
    # Each mood has cost a call.
    assert len(api.calls) == len(texts) + 6


@pytest.mark.virtual_time
async def test_a_notice_that_is_refused_is_a_dead_letter_and_the_next_one_follows() -> None:
    api = Remote()
    async with running(api) as test:
        await send(test, "ada", "1 (refuse)", "2")
        await test.settled(timeout=60)
        (letter,) = test.records("dead-letter-topic-alarms")
        assert letter.value == b'{"to":"ada","text":"1 (refuse)"}'
        assert list(api.delivered.values()) == ["2"]
    assert [call.status for call in api.calls] == [422, 204]


@pytest.mark.virtual_time
async def test_a_busy_api_is_left_alone_by_all_customers_until_its_time() -> None:
    api = Remote()
    async with running(api) as test:
        await send(test, "ada", "1 (busy)")
        await send(test, "bob", *map(str, range(20)))
        await test.settled(timeout=60)
    (told,) = [call for call in api.calls if call.status == 429]
    later = [call.began - told.began for call in api.calls if call.began > told.began + 0.1]
    assert min(later) == pytest.approx(2.0, abs=0.01)
    assert len(api.delivered) == 21


@pytest.mark.virtual_time
async def test_a_burst_for_one_customer_is_slowed_down_and_others_do_not_wait() -> None:
    api = Remote()
    async with running(api) as test:
        await send(test, "ada", *map(str, range(30)))
        await send(test, "bob", "1")
        await test.settled(timeout=60)
    starts = [call.began for call in api.calls if call.to == "ada"]
    assert starts[-1] - starts[0] == pytest.approx((30 - 3) / 3, abs=0.5)
    assert not too_fast(starts)
    (bob,) = [call.began for call in api.calls if call.to == "bob"]
    assert bob == pytest.approx(starts[0], abs=0.1)


@pytest.mark.virtual_time
async def test_both_channels_together_make_ten_calls_at_once() -> None:
    api = Remote()
    async with running(api) as test:
        for number in range(15):
            await send(test, f"customer-{number}", "1")
            await send(test, f"customer-{number}", "2", channel="digests")
        await test.settled(timeout=60)
    assert api.most_at_once == 10
    assert len(api.delivered) == 30


def test_the_driver_notices_alarms_that_start_too_fast() -> None:
    assert not too_fast([0.0, 0.0, 0.0, 0.3, 0.6, 0.9, 1.2])
    assert too_fast([0.0, 0.0, 0.0, 0.1, 0.1, 0.2, 0.3])


def test_the_driver_notices_a_channel_that_does_not_wait() -> None:
    def call(topic: str, began: float, retry_after_s: float | None = None) -> Call:
        return Call(f"{topic}/0/0", "ada", began, began, 204, retry_after_s)

    told, under_way = call("alarms", 10.0, 2.0), call("alarms", 10.3)
    other, early, in_time = call("digests", 11.0), call("alarms", 11.0), call("alarms", 12.0)
    assert impatient([told, under_way, other, in_time]) == []
    assert impatient([told, told, under_way, early]) == [early]


@pytest.mark.kafka
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long_faults)])
def test_each_notice_is_delivered_once_whenever_the_process_is_killed(
    kafka: str, kills: int
) -> None:
    driven("notices", kafka, kills)
