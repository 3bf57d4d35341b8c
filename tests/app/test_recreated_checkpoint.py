"""A topic that was recreated, where a checkpoint store keeps the positions."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import App, Message
from reactive_kafka.events import ChannelFailed
from tests.app.checkpoints import Rows, app_on, row
from tests.app.helpers import Recorder, in_virtual_time, make_broker, running, until
from tests.app.test_recreated import TEN, fill, new_values, recreate, told, until_all_of


@pytest.mark.parametrize("orders", [{}, {"assign": ["orders:0"]}])
@pytest.mark.parametrize("count", [3, 50])
@in_virtual_time
async def test_the_row_goes_back_with_the_reader(orders: dict[str, Any], count: int) -> None:
    """Row F6 of the faults: nobody deletes the row of a deleted topic, and a running reader does
    not believe it.
    """
    rows, recorder, seen, broker = Rows(), Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    app = app_on(rows, recorder, **orders)

    @app.incoming("orders")
    async def note(message: Message[bytes]) -> None:
        seen.append(message.payload)

    async with running(app, broker=broker):
        await until(lambda: seen == TEN)
        await until(lambda: row(rows).position == 10)
        recreate(broker, new_values(count))
        await until_all_of(seen, new_values(count))
        await until(lambda: row(rows).position == count, 30)
        assert told(recorder)
    await broker.close()


@pytest.mark.parametrize("count", [10, 50])
@in_virtual_time
async def test_a_row_of_a_store_knows_its_topic(count: int) -> None:
    """A store keeps what Kafka drops with the topic: position and state of a topic that is no
    more.
    """
    recorder, seen, states, broker, rows = (
        Recorder(),
        list[bytes](),
        list[Any](),
        make_broker(),
        Rows(),
    )
    fill(broker, TEN)

    def app() -> App:
        app = app_on(rows, recorder, auto_offset_reset="earliest")

        @app.incoming("orders")
        async def note(message: Message[bytes]) -> None:
            states.append(message.checkpoint.get())
            message.checkpoint.set(message.offset)
            seen.append(message.payload)

        return app

    async with running(app(), broker=broker):
        await until(lambda: row(rows).position == 10)
    recreate(broker, new_values(count))
    seen.clear()
    states.clear()
    async with running(app(), broker=broker):
        await until(lambda: seen == new_values(count))
        await until(lambda: row(rows).position == count)
    assert states[0] is None, "the state is of the old topic"
    [reset] = told(recorder)
    assert (reset.from_offset, reset.to_offset, reset.to) == (10, 0, "earliest")
    assert "its id was id-1, and is id-2" in reset.text()
    seen.clear()
    # The row is of the new topic by now.
    async with running(app(), broker=broker) as test:
        fill(broker, [b"last"])
        await until(lambda: seen == [b"last"])
        await test.settled()
    await broker.close()


@in_virtual_time
async def test_with_fail_a_row_of_the_old_topic_stops_the_channel_and_stays() -> None:
    recorder, seen, broker, rows = Recorder(), list[bytes](), make_broker(), Rows()
    fill(broker, TEN)

    def app() -> App:
        app = app_on(rows, recorder, auto_offset_reset="earliest", on_recreated_topic="fail")

        @app.incoming("orders")
        async def note(message: Message[bytes]) -> None:
            seen.append(message.payload)

        return app

    async with running(app(), broker=broker):
        await until(lambda: row(rows).position == 10)
    recreate(broker, new_values(50))
    async with running(app(), broker=broker):
        await until(lambda: recorder.of(ChannelFailed))
    [failed] = recorder.of(ChannelFailed)
    assert "its id was id-1, and is id-2" in failed.text()
    assert (seen, row(rows).position) == (TEN, 10)
    await broker.close()
