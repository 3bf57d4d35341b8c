"""Channels of an ``application.properties`` do what they did under SmallRye."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reactive_kafka import App, Message
from reactive_kafka.testing import TestApp
from tests.app.handlers import note_offsets
from tests.app.helpers import facts, in_virtual_time, running, send, settle_down, tp, until

PREFIX = "mp.messaging.incoming.orders."


def app_of(folder: Path, **attributes: str) -> App:
    """The attributes of the channel orders, with ``_`` for ``-``."""
    given = {"group.id": "billing", "auto.offset.reset": "earliest"}
    given |= {name.replace("_", "-"): value for name, value in attributes.items()}
    file = folder / "application.properties"
    file.write_text("".join(f"{PREFIX}{name}={value}\n" for name, value in given.items()))
    return App(file)


@pytest.mark.parametrize(
    ("fails", "state", "letters"),
    [({}, "failed", []), ({"fail_on_deserialization_failure": "false"}, "running", [b"no json"])],
)
def test_what_cannot_be_decoded_stops_the_channel_unless_it_says_otherwise(
    fails: dict[str, str], state: str, letters: list[bytes], tmp_path: Path
) -> None:
    app, seen = app_of(tmp_path, failure_strategy="dead-letter-queue", **fails), []

    @app.incoming("orders")
    async def handler(order: dict) -> None:
        seen.append(order)
        raise ValueError("no")

    @in_virtual_time
    async def play() -> None:
        async with running(app) as test:
            await send(test, b'{"id": 1}')
            await test.settled()
            await send(test, b"no json")
            await until(
                lambda: (
                    facts(test).state == "failed"
                    or len(test.records("dead-letter-topic-orders")) == 2
                )
            )
            assert facts(test).state == state
            dead = [record.value for record in test.records("dead-letter-topic-orders")]
            assert dead == [b'{"id": 1}', *letters]

    play()
    assert seen == [{"id": 1}]


class Busy:
    """Counts calls at once, and their order in each partition."""

    def __init__(self, app: App) -> None:
        self.now = self.most = 0
        self.seen: dict[int, list[int]] = {}

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.1)
            self.now -= 1
            self.seen.setdefault(message.partition, []).append(message.offset)


@pytest.mark.parametrize(
    ("attributes", "at_once"), [({}, 1), ({"concurrency": "3"}, 3), ({"partitions": "3"}, 1)]
)
def test_copies_of_a_channel_handle_partitions_at_once_and_each_in_its_order(
    attributes: dict[str, str], at_once: int, tmp_path: Path
) -> None:
    app = app_of(tmp_path, **attributes)
    busy = Busy(app)

    @in_virtual_time
    async def play() -> None:
        async with running(app, partitions=3) as test:
            for partition in range(3):
                await send(test, *[b""] * 5, partition=partition)
            await test.settled()

    play()
    assert busy.most == at_once
    assert busy.seen == {partition: [0, 1, 2, 3, 4] for partition in range(3)}


def test_ordered_channels_handle_keys_at_once(tmp_path: Path) -> None:
    app = app_of(tmp_path, ordered="key", **{"ordered.max_concurrency": "2"})
    busy = Busy(app)

    @in_virtual_time
    async def play() -> None:
        async with running(app) as test:
            for key in (b"a", b"b", b"c", b"a"):
                await test.send("orders", b"", key=key, partition=0)
            await test.settled()

    play()
    assert busy.most == 2


def test_a_key_is_text(tmp_path: Path) -> None:
    app, keys = app_of(tmp_path), []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        keys.append(message.key)

    @in_virtual_time
    async def play() -> None:
        async with running(app) as test:
            await test.send("orders", b"", key="größe".encode())
            await test.send("orders", b"", key=None)
            await test.settled()

    play()
    assert keys == ["größe", None]


@in_virtual_time
async def test_a_channel_that_is_paused_at_its_assignment_reads_nothing_until_it_is_resumed() -> (
    None
):
    """What initially-paused is refused for."""
    app, seen = (
        App({"incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}}}),
        [],
    )

    @app.on_assigned("orders")
    async def pause(_: frozenset[object]) -> None:
        if not seen:
            app.channel("orders").pause()

    note_offsets(app, seen)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: tp() in test.app.channel("orders").assignment)
        await asyncio.sleep(5)
        await settle_down()
        assert seen == []
        app.channel("orders").resume()
        await test.settled()
    assert seen == [0]


async def test_several_functions_may_send_to_one_channel() -> None:
    """What merge is needed for with SmallRye."""
    app = App(
        {"incoming": {"a": {"group_id": "g"}, "b": {"group_id": "g"}}, "outgoing": {"out": {}}}
    )

    @app.incoming("a")
    @app.outgoing("out")
    async def of_a(value: bytes) -> bytes:
        return b"a" + value

    @app.incoming("b")
    @app.outgoing("out")
    async def of_b(value: bytes) -> bytes:
        return b"b" + value

    async with TestApp(app) as test:
        await test.send("a", b"1")
        await test.send("b", b"2")
        await test.settled()
        assert sorted(record.value or b"" for record in test.records("out")) == [b"a1", b"b2"]
