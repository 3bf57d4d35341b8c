"""A topic that was made anew, where a checkpoint store keeps the positions."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import Message
from reactive_kafka.checkpoint.stores.memory import Rows
from tests.app.checkpoints import app_on, row
from tests.app.helpers import Recorder, in_virtual_time, make_broker, running, until
from tests.app.test_recreated import TEN, fill, new_values, recreate, told, until_all_of


@pytest.mark.parametrize("orders", [{}, {"assign": ["orders:0"]}])
@pytest.mark.parametrize("count", [3, 50])
@in_virtual_time
async def test_the_row_goes_back_with_the_reader(orders: dict[str, Any], count: int) -> None:
    """Row F6 of the faults: nobody deletes the row of a deleted topic, and a running reader does not believe it."""
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
