"""The code of the how-to pages does what they say."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from reactive_kafka import Message, TopicPartition
from reactive_kafka.records import Committed
from reactive_kafka.testing import TestApp
from tests import pages
from tests.app.helpers import in_virtual_time, until
from tests.test_docs import laid_out, run_code

Page = Callable[[str], ModuleType]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """Runs the code of a page, with its configuration in the current folder."""
    with ExitStack() as stack:

        def run(name: str) -> ModuleType:
            found = pages.page(f"docs/howto/{name}.md")
            stack.enter_context(laid_out(found, tmp_path, monkeypatch))
            return run_code(found)

        yield run


@in_virtual_time
async def test_what_came_since_a_time_is_handled_again(page: Page) -> None:
    code, seen = page("replay-yesterday"), []

    @code.app.incoming("orders")
    async def handle(order: Message[str]) -> None:
        seen.append(order.payload)

    now = datetime.now(UTC)
    async with TestApp(code.app) as test:
        for number, value in enumerate((b"old", b"new", b"newer")):
            at = now + timedelta(hours=number)
            test.broker.produce(
                "orders", value, partition=0, timestamp_ms=int(at.timestamp() * 1000)
            )
        await test.settled()
        await code.replay(now + timedelta(minutes=1))
        await until(lambda: seen == ["old", "new", "newer", "new", "newer"])


@in_virtual_time
async def test_a_record_that_can_never_work_is_put_aside_and_the_channel_goes_on(
    page: Page,
) -> None:
    async with TestApp(page("skip-a-record").app) as test:
        await test.send("orders", {"version": 3}, partition=0)
        await test.send("orders", {"version": 2}, partition=0)
        await test.settled()
        assert [letter.value for letter in test.records("dead-letter-topic-orders")] == [
            b'{"version":3}'
        ]


@in_virtual_time
async def test_a_channel_waits_for_its_service(
    page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    code, up = page("pause-while-a-service-is-away"), asyncio.Event()

    async def is_up() -> bool:
        return up.is_set()

    vars(code)["is_up"] = is_up
    async with TestApp(code.app) as test:
        orders = code.app.channel("orders")
        await until(lambda: orders.paused)
        await test.send("orders", {"id": 1}, partition=0)
        await asyncio.sleep(100)
        assert capsys.readouterr().out == ""
        assert code.app.health().ready.is_up
        up.set()
        await until(lambda: not orders.paused)
        await test.settled()
        assert capsys.readouterr().out == "{'id': 1}\n"


async def test_the_row_and_the_position_of_an_order_are_one_transaction(
    page: Page, tmp_path: Path
) -> None:
    app, file = page("exactly-once-into-postgresql").app, tmp_path / "shop.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("CREATE TABLE invoices (customer TEXT, cents BIGINT CHECK (cents > 0))")
        elsewhere = {
            "incoming": {
                "orders": {
                    "checkpoint": {"store": f"sqlite:///{file}"},
                    "failure_strategy": "ignore",
                }
            }
        }
        async with TestApp(app, overrides=elsewhere) as test:
            # The database refuses the second one.
            for cents in (100, -1, 200):
                await test.send("orders", {"customer": "ada", "cents": cents}, partition=0)
            await test.settled()
            assert database.execute("SELECT cents FROM invoices").fetchall() == [(100,), (200,)]
        rows = database.execute(
            "SELECT position FROM reactive_kafka_checkpoints WHERE position > 0"
        )
        assert rows.fetchall() == [(3,)]


async def test_a_sum_is_stored_with_its_position(page: Page, tmp_path: Path) -> None:
    async with TestApp(page("keep-a-running-sum").app) as test:
        for cents in (100, 200):
            await test.send("payments", {"cents": cents}, partition=0)
        await test.settled()
    with closing(sqlite3.connect(tmp_path / "offsets.db")) as database:
        ((position, state),) = database.execute(
            "SELECT position, state FROM reactive_kafka_checkpoints WHERE position > 0"
        )
    assert (position, json.loads(state)) == (2, {"count": 2, "cents": 300})


async def test_another_groups_offsets_are_read_from_outside(page: Page) -> None:
    code = page("read-offsets-of-another-group")

    @code.app.incoming("orders")
    async def ship(order: str) -> None: ...

    async with TestApp(code.app) as test:
        place = TopicPartition("orders", 0)
        test.broker.create_topic("orders", 1)
        inspector = test.broker.connector().inspector(properties={})
        await inspector.start()
        await inspector.commit("billing", {place: Committed(7, "stage 2")})
        await inspector.stop()
        assert await code.how_far_is_billing() == {place: 7}
        assert await code.what_billing_wrote_beside(place) == "stage 2"
