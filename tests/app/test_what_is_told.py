"""What is logged where nothing can be read, or what is settled cannot be stored: one line, not none
and not a flood.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest

from reactive_kafka import App, Message
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.events import (
    ChannelFailed,
    ChannelStateChanged,
    PositionsKnown,
    PositionsUnknown,
    SettledNotStored,
    StoreAvailable,
    StoreUnavailable,
)
from reactive_kafka.testing import TestApp
from tests.app.checkpoints import Rows, app_on
from tests.app.handlers import note_offsets, take_all
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    running,
    send,
    tp,
    until,
)


@in_virtual_time
async def test_a_store_that_is_away_at_the_start_is_told_once_and_once_that_it_is_back() -> None:
    rows, recorder, seen = Rows(), Recorder(), list[int]()
    app = app_on(rows, recorder)
    note_offsets(app, seen)

    async def come_back() -> None:
        await asyncio.sleep(120)
        (missed,) = recorder.of(StoreUnavailable)
        assert (missed.text(), missed.loudness()) == (
            "the checkpoint store cannot be used: the in-memory store is away",
            "warning",
        )
        assert app.channel("orders").facts().not_ready == (
            "positions of 1 partition are not known: the checkpoint store is away: the in-memory store is away",
        )
        assert recorder.of(StoreAvailable) == []
        rows.faults.away = False

    rows.faults.away = True
    back = asyncio.create_task(come_back())
    async with TestApp(app, broker=make_broker(), start_timeout_s=180) as test:
        await send(test, b"")
        await until(lambda: seen == [0])
    await back
    assert len(recorder.of(StoreUnavailable)) == len(recorder.of(StoreAvailable)) == 1
    assert recorder.of(PositionsUnknown) == [], "that is told by one line"


@in_virtual_time
async def test_a_group_that_cannot_be_asked_is_told_too_and_a_start_without_trouble_tells_nothing() -> (
    None
):
    for failures in (0, 3):
        recorder, broker = Recorder(), make_broker()
        broker.fail_next("committed", TransientBrokerError("the coordinator moves"), times=failures)
        app = make_app(recorder)

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None: ...

        async with running(app, broker=broker) as test:
            await send(test, b"")
            await test.settled()
        assert [event.reason for event in recorder.of(PositionsUnknown)] == [
            "the coordinator moves"
        ] * bool(failures)
        assert len(recorder.of(PositionsKnown)) == bool(failures)


@in_virtual_time
async def test_a_stop_that_cannot_store_what_is_settled_says_so_before_it_ends() -> None:
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder, commit_interval="1h", checkpoint={"unsynced_max_age": "2h"})

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None: ...

    async with running(app, partitions=2) as test:
        await send(test, b"", b"", partition=0)
        await send(test, b"", partition=1)
        await test.settled()
        await send(test, b"", b"", partition=0)
        await until(
            lambda: sum(place.position for place in app.channel("orders").facts().partitions) == 5
        )
        rows.faults.away = True
    (told,) = recorder.of(SettledNotStored)
    assert told.partitions == {tp(0)}
    assert told.text() == (
        "stop: settled positions of 1 partition were not stored, at most 2 records may be delivered again: "
        "the in-memory store is away"
    )
    ended = next(event for event in recorder.of(ChannelStateChanged) if event.new == "stopped")
    assert recorder.events.index(told) < recorder.events.index(ended)


@in_virtual_time
async def test_a_stop_that_stores_everything_says_nothing() -> None:
    recorder = Recorder()
    app = make_app(recorder, commit_interval="1h")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None: ...

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: app.channel("orders").facts().partitions[0].position == 2)
    assert recorder.of(SettledNotStored) == []


@pytest.mark.parametrize(
    ("strategy", "became"),
    [("ignore", "ignored"), ("dead-letter-queue", "written to dead-letter-topic-orders")],
)
@in_virtual_time
async def test_every_record_that_failed_is_named_in_the_log(
    strategy: str, became: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(failure_strategy=strategy)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise ValueError("no")

    async with running(app, partitions=2) as test:
        for partition in (0, 1):
            await send(test, *[b""] * 50, partition=partition)
        await test.settled()
    named: dict[str, set[int]] = {"orders-0": set(), "orders-1": set()}
    for line in caplog.messages:
        if match := re.match(
            rf"orders: (orders-[01]) offsets? ([0-9, -]+) w.* nacked and {became}: ValueError: no",
            line,
        ):
            for run in match[2].split(", "):
                first, _, last = run.partition("-")
                named[match[1]].update(range(int(first), int(last or first) + 1))
    assert named == {"orders-0": set(range(50)), "orders-1": set(range(50))}
    assert len(caplog.messages) < 40


@pytest.mark.parametrize("restarts", [0, 1])
@in_virtual_time
async def test_a_channel_that_a_record_has_stopped_says_what_comes_next(restarts: int) -> None:
    recorder = Recorder()
    app = make_app(recorder, restart={"max_attempts": restarts, "backoff": "50s"})

    @app.incoming("orders")
    async def handler(value: dict[str, int]) -> None: ...

    async with running(app) as test:
        await send(test, b"[]")
        await until(lambda: recorder.of(ChannelFailed))
    reason = recorder.of(ChannelFailed)[0].reason
    assert reason.startswith(
        "channel 'orders': orders-0 offset 0: DecodeError: does not fit dict[str, int]: "
    )
    stays_down = (
        "; restart the channel, or set another failure_strategy than 'fail' to continue past "
        "failed records"
    )
    assert reason.endswith(
        "; the channel is started again in 50 s (attempt 1 of 1)" if restarts else stays_down
    )


async def start_and_stop(app: App) -> None:
    """As in production: a test that runs it in a TestApp is not told what is odd about the
    configuration.
    """
    broker = make_broker()
    app._connector, app._clock = broker.connector(), asyncio.get_running_loop().clock  # type: ignore[attr-defined]
    app.configure(overrides={"http": {"enabled": False}})
    async with app:
        await until(lambda: app.channel("orders").is_ready)
    await broker.close()


@in_virtual_time
async def test_a_secret_file_that_others_may_read_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row J6 of the faults."""
    secret = tmp_path / "password"
    secret.write_text("hunter2")
    secret.chmod(0o604)
    app = make_app(
        security_protocol="SASL_SSL", sasl_plain_username="u", sasl_plain_password_file=str(secret)
    )
    take_all(app)

    await start_and_stop(app)
    (told,) = (record for record in caplog.records if "password" in record.getMessage())
    assert (told.levelname, told.name) == ("WARNING", "reactive_kafka")
    assert told.getMessage().endswith(f"chmod 600 '{secret}'")


@in_virtual_time
async def test_a_setting_without_effect_is_one_line_at_the_start_and_the_application_runs() -> None:
    lines = list[str]()
    sink = logging.Handler(logging.WARNING)
    sink.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("reactive_kafka").addHandler(sink)
    try:
        app = make_app(dead_letter_queue={"topic": "letters"})

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None: ...

        await start_and_stop(app)
    finally:
        logging.getLogger("reactive_kafka").removeHandler(sink)
    (told,) = [line for line in lines if "has no effect" in line]
    assert told.startswith(
        "code: [incoming.orders] dead_letter_queue.topic = 'letters': has no effect: neither"
    )
