"""The offsets in the application's hands: committed, lag, commit of given positions, metadata, and
other groups.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any
from uuid import uuid4

import pytest

from reactive_kafka import (
    App,
    BrokerError,
    Channel,
    CommitRefusedError,
    Committed,
    ConfigError,
    DecodeError,
    IncomingSettings,
    Message,
    NotOwnerError,
    Progress,
    TopicPartition,
)
from reactive_kafka.errors import (
    CommitStrategyError,
    FatalBrokerError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from tests.app.checkpoints import Rows, app_on, row
from tests.app.handlers import Kept, keep_messages
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    positions,
    rebalanced,
    running,
    send,
    tp,
    until,
)
from tests.harness.kafka import clients_of
from tests.tracking.stored import text_with_plans


def keeping(**orders: Any) -> Kept:
    """An application that keeps its messages, and commits by itself once an hour."""
    rare: dict[str, Any] = {
        "commit_interval": "1h",
        "unprocessed_record_max_age": 0,
        "drain_timeout": "100ms",
    }
    return Kept(**{**rare, **orders})


def upper(text: str) -> str:
    """A deserializer of the user's."""
    return text.upper()


# -- asking


@in_virtual_time
async def test_committed_and_lag_of_every_partition() -> None:
    kept = keeping()
    async with running(kept.app, partitions=2) as test:
        await send(test, *[b""] * 5, partition=0)
        await send(test, b"", partition=1)
        await kept.have(6)
        assert await kept.channel.committed() == {tp(0): None, tp(1): None}
        # From where reading began.
        assert await kept.channel.lag() == {tp(0): 5, tp(1): 1}
        for message in kept.messages[:2]:
            message.ack()
        await kept.channel.commit()
        [done] = [place for place in (tp(0), tp(1)) if committed(test, place.partition) is not None]
        assert (await kept.channel.committed())[done] == committed(test, done.partition)
        await send(test, b"", partition=done.partition)
        assert (await kept.channel.lag())[done] == test.broker.end(done) - (
            committed(test, done.partition) or 0
        )
        assert kept.channel.assignment == {tp(0), tp(1)}


@in_virtual_time
async def test_lag_counts_from_where_reading_began_where_nothing_is_committed() -> None:
    kept = keeping(auto_offset_reset="latest", assign=["orders:0:3"])
    broker = make_broker(1)
    for _ in range(5):
        broker.produce("orders", b"", partition=0)
    async with running(kept.app, broker=broker):
        await kept.have(2)
        assert await kept.channel.committed() == {tp(): None}
        assert await kept.channel.lag() == {tp(): 2}


@in_virtual_time
async def test_committed_is_what_the_group_has_now_and_not_what_was_known() -> None:
    kept = keeping()
    broker = make_broker(1)
    async with running(kept.app, broker=broker) as test:
        member = next(iter(broker.members("billing")))
        broker._state.group("billing").commit(
            member, broker.generation("billing"), {tp(): Committed(7)}
        )
        assert facts(test).partitions[0].committed is None
        assert await kept.channel.committed() == {tp(): 7}


@in_virtual_time
async def test_a_broker_that_is_away_is_an_error_and_a_group_is_not_needed() -> None:
    kept = keeping(group_id=None, assign=["orders:0:0"], commit_strategy="ignore")
    broker = make_broker(1)
    async with running(kept.app, broker=broker) as test:
        await send(test, b"", b"")
        await kept.have(2)
        assert await kept.channel.committed() == {tp(): None}
        assert await kept.channel.lag() == {tp(): 2}
        broker.down = True
        with pytest.raises(TransientBrokerError):
            await kept.channel.lag()
        broker.down = False


# -- commits


@in_virtual_time
async def test_commit_stores_what_is_settled_at_once() -> None:
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, *[b""] * 3)
        await kept.have(3)
        await kept.channel.commit()
        assert positions(test.broker) == []
        kept.messages[0].ack()
        kept.messages[2].ack()
        await kept.channel.commit()
        assert positions(test.broker) == [1]
        kept.messages[1].ack()


@in_virtual_time
async def test_commit_is_refused_while_there_is_no_client_and_stores_what_was_settled_when_there_is_one() -> (
    None
):
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, b"", b"")
        await kept.have(2)
        kept.messages[0].ack()
        test.broker.down = True
        test.broker.fail_next("poll", TransientBrokerError("the client is broken"))
        await until(lambda: not kept.channel.assignment)
        with pytest.raises(TransientBrokerError, match="'orders' is not connected to the broker"):
            await kept.channel.commit()
        test.broker.down = False
        await until(lambda: kept.channel.assignment)
        await kept.channel.commit()
        assert len(kept.messages) == 2, (
            "nobody else had the partition: it goes on where it was left"
        )
        assert positions(test.broker) == [1]


@in_virtual_time
async def test_a_given_position_is_stored_exactly_and_nothing_more() -> None:
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, *[b""] * 5)
        await kept.have(5)
        for message in kept.messages[:4]:
            message.ack()
        await kept.channel.commit({("orders", 0): 2})
        assert await kept.channel.committed() == {tp(): 2}
        await kept.channel.commit({tp(): 4})
        assert positions(test.broker) == [2, 4]
        kept.messages[4].ack()


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({tp(): 3}, CommitRefusedError, "the record at offset 2 is not settled"),
        ({tp(): 0}, CommitRefusedError, "go back"),
        ({tp(5): 1}, NotOwnerError, "channel 'orders': orders-5 is not ours"),
        ({tp(1): 0, tp(0): 3}, CommitRefusedError, "not settled"),
        ({"orders-0": 1}, TypeError, "TopicPartition"),
        ([(tp(), 1)], TypeError, "a dict of partition to position"),
        ({tp(): -1}, ValueError, "-1"),
        ({tp(): "1"}, ValueError, "'1'"),
    ],
)
@in_virtual_time
async def test_what_is_not_safe_or_not_ours_is_refused_and_nothing_is_sent(
    asked: Any, error: type[Exception], said: str
) -> None:
    kept = keeping()
    async with running(kept.app, partitions=2) as test:
        await send(test, *[b""] * 4)
        await kept.have(4)
        kept.messages[0].ack()
        kept.messages[1].ack()
        await kept.channel.commit({tp(): 1})
        with pytest.raises(error, match=said):
            await kept.channel.commit(asked)
        assert positions(test.broker) == [1]
        for message in kept.messages:
            message.ack()


@in_virtual_time
async def test_of_several_clients_none_commits_if_one_position_is_refused() -> None:
    kept = keeping(consumers=2)
    async with running(kept.app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await kept.have(2)
        assert await kept.channel.lag() == {tp(0): 1, tp(1): 1}
        next(message for message in kept.messages if message.partition == 0).ack()
        with pytest.raises(CommitRefusedError):
            await kept.channel.commit({tp(0): 1, tp(1): 1})
        assert test.broker.committed("billing") == {}
        next(message for message in kept.messages if message.partition == 1).ack()
        await kept.channel.commit({tp(0): 1, tp(1): 1})
        assert await kept.channel.committed() == {tp(0): 1, tp(1): 1}


@in_virtual_time
async def test_a_commit_that_fails_is_raised_and_what_is_settled_is_stored_later() -> None:
    kept = keeping(commit_interval="1s")
    async with running(kept.app) as test:
        await send(test, b"")
        await kept.have(1)
        kept.messages[0].ack()
        test.broker.fail_next("commit", TransientBrokerError("no"))
        with pytest.raises(BrokerError, match="no"):
            await kept.channel.commit({tp(): 1})
        await until(lambda: committed(test) == 1)
        test.broker.fail_next("commit", TransientBrokerError("again"))
        await send(test, b"")
        await kept.have(2)
        kept.messages[1].ack()
        with pytest.raises(BrokerError, match="channel 'orders': again"):
            await kept.channel.commit()
        await until(lambda: committed(test) == 2)


class Refuses:
    """A commit strategy whose answer is no position."""

    interval_s = None
    commits_at_ack = False

    def __init__(self, settings: IncomingSettings) -> None: ...

    def position(self, progress: Progress, now: float) -> Any:
        return "the end"


@pytest.mark.parametrize("positions_given", [None, {tp(): 1}])
@pytest.mark.parametrize(
    "kind", [NotOwnerError, OutcomeUnknownError, FatalBrokerError, TransientBrokerError]
)
@in_virtual_time
async def test_whatever_keeps_a_commit_from_being_stored_is_raised_as_what_it_is(
    kind: type[BrokerError], positions_given: Any
) -> None:
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, b"")
        await kept.have(1)
        kept.messages[0].ack()
        test.broker.fail_next("commit", kind("it moved"))
        with pytest.raises(kind, match="it moved"):
            await kept.channel.commit(positions_given)
        assert positions(test.broker) == []
        await kept.channel.commit(positions_given)
        assert positions(test.broker) == [1]


@in_virtual_time
async def test_of_several_clients_each_commits_what_it_can_and_what_one_could_not_is_raised() -> (
    None
):
    kept = keeping(consumers=2)
    async with running(kept.app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await kept.have(2)
        for message in kept.messages:
            message.ack()
        test.broker.fail_next("commit", NotOwnerError("it moved"))
        with pytest.raises(NotOwnerError, match="channel 'orders': it moved"):
            await kept.channel.commit()
        assert sorted((committed(test, 0) or 0, committed(test, 1) or 0)) == [0, 1]


@in_virtual_time
async def test_a_commit_that_its_strategy_keeps_from_being_sent_is_raised() -> None:
    kept = keeping(commit_strategy=f"{__name__}:Refuses")
    async with running(kept.app) as test:
        await send(test, b"")
        await kept.have(1)
        kept.messages[0].ack()
        with pytest.raises(CommitStrategyError, match="'the end'"):
            await kept.channel.commit()
        assert positions(test.broker) == []


@in_virtual_time
async def test_a_commit_in_the_midst_of_a_rebalance_says_that_what_is_settled_was_not_stored() -> (
    None
):
    kept = keeping(revoke_grace="100ms")
    async with running(kept.app) as test:
        await send(test, b"", b"")
        await kept.have(2)
        asked = test.broker.hold("committed")
        test.broker.rebalance("billing")
        await asked.arrived()
        # Nothing is settled.
        await kept.channel.commit()
        kept.messages[0].ack()
        with pytest.raises(NotOwnerError, match="channel 'orders': a rebalance has orders-0"):
            await kept.channel.commit()
        asked.release()
        await until(lambda: kept.channel.is_ready)
        await kept.channel.commit()
        assert positions(test.broker) == [1]
        kept.messages[1].ack()


@in_virtual_time
async def test_a_commit_that_waits_for_the_one_before_it_says_that_the_connection_was_lost_meanwhile() -> (
    None
):
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, b"", b"")
        await kept.have(2)
        kept.messages[0].ack()
        hold = test.broker.hold("commit")
        test.broker.answer_timeout_s = 180.0
        first = asyncio.create_task(kept.channel.commit())
        await hold.arrived()
        kept.messages[1].ack()
        second = asyncio.create_task(kept.channel.commit())
        test.broker.fail_next("poll", TransientBrokerError("the client is broken"))
        await until(lambda: not test.broker.members("billing"))
        # Or another client would connect at once.
        test.broker.down = True
        await asyncio.wait({first, second})
        assert isinstance(first.exception(), BrokerError)
        assert isinstance(second.exception(), BrokerError)
        assert positions(test.broker) == []
        test.broker.down = False
        await kept.have(4)


@in_virtual_time
async def test_all_of_it_works_in_the_hooks() -> None:
    kept, story = keeping(), list[Any]()

    @kept.app.on_assigned("orders")
    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        story.append(
            (
                kept.channel.assignment,
                await kept.channel.committed(),
                await kept.channel.offset_metadata(tp()),
            )
        )

    async def end(who: str) -> None:
        at = len(kept.messages) - 1
        if at < 0:
            return
        assert await kept.channel.ack_up_to(kept.messages[at])
        stored = kept.channel.store_offset_metadata(tp(), f"by {who}")
        await kept.channel.commit({tp(): at + 1})
        story.append(
            (who, stored, await kept.channel.committed(), await kept.channel.offset_metadata(tp()))
        )

    @kept.app.on_revoked("orders")
    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        await end("revoked")

    broker = make_broker(1)
    async with running(kept.app, broker=broker) as test:
        await send(test, b"")
        await kept.have(1)
        await rebalanced(test)
        kept.messages.clear()
    assert story == [
        (frozenset({tp()}), {tp(): None}, ""),
        ("revoked", True, {tp(): 1}, "by revoked"),
        (frozenset({tp()}), {tp(): 1}, "by revoked"),
    ]


@in_virtual_time
async def test_what_is_left_is_flushed_and_marked_before_the_stop() -> None:
    kept, told = keeping(), list[Any]()

    @kept.app.before_stop
    async def flush() -> None:
        told.append(await kept.channel.ack_up_to(kept.messages[-1], metadata="flushed"))
        await kept.channel.commit()
        told.append((await kept.channel.committed(), await kept.channel.offset_metadata(tp())))

    broker = make_broker(1)
    async with running(kept.app, broker=broker) as test:
        await send(test, *[b""] * 3)
        await kept.have(3)
        assert committed(test) is None
    assert told == [True, ({tp(): 3}, "flushed")]


# -- metadata


@in_virtual_time
async def test_a_string_goes_with_the_next_position_and_is_read_back() -> None:
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, b"", b"")
        await kept.have(2)
        assert await kept.channel.offset_metadata(tp()) == ""
        assert kept.channel.store_offset_metadata(("orders", 0), "stage 1") is True
        kept.messages[0].ack()
        await kept.channel.commit()
        assert await kept.channel.offset_metadata(("orders", 0)) == "stage 1"
        await kept.messages[1].ack(metadata="stage 2")
        await kept.channel.commit()
        assert await kept.channel.offset_metadata(tp()) == "stage 2"


@in_virtual_time
async def test_a_partition_that_is_not_ours_takes_none_and_has_none() -> None:
    kept = keeping()
    async with running(kept.app):
        assert kept.channel.store_offset_metadata(tp(3), "x") is False
        assert await kept.channel.offset_metadata(tp(3)) is None
        with pytest.raises(ValueError, match="4,096"):
            kept.channel.store_offset_metadata(tp(), "x" * 4097)
        with pytest.raises(TypeError, match="TopicPartition"):
            kept.channel.store_offset_metadata("orders-0", "x")
        with pytest.raises(TypeError, match="TopicPartition"):
            await kept.channel.offset_metadata(["orders", 0])


@in_virtual_time
async def test_a_partition_that_goes_while_it_is_asked_for_has_none() -> None:
    kept, joining = keeping(offset_metadata_cache=False), keeping()
    broker = make_broker(2)
    async with running(kept.app, broker=broker) as test:
        await send(test, b"", partition=1)
        await kept.have(1)
        await kept.messages[0].ack(metadata="ours")
        await kept.channel.commit()
        held = broker.hold("committed", answer=True)
        asking = asyncio.ensure_future(kept.channel.offset_metadata(tp(1)))
        await held.arrived()
        async with running(joining.app, broker=broker):
            await until(
                lambda: (kept.channel.assignment, joining.channel.assignment) == ({tp(0)}, {tp(1)}),
                60,
            )
            held.release()
            assert await asking is None


@pytest.mark.parametrize("cache", [True, False])
@in_virtual_time
async def test_what_was_read_is_kept_until_a_rebalance_or_asked_for_each_time(cache: bool) -> None:
    kept = keeping(offset_metadata_cache=cache)
    broker = make_broker(1)
    async with running(kept.app, broker=broker) as test:
        await send(test, b"")
        await kept.have(1)
        await kept.messages[0].ack(metadata="ours")
        await kept.channel.commit()
        assert await kept.channel.offset_metadata(tp()) == "ours"

        member = next(iter(broker.members("billing")))
        broker._state.group("billing").commit(
            member, broker.generation("billing"), {tp(): Committed(1, "theirs")}
        )
        assert await kept.channel.offset_metadata(tp()) == ("ours" if cache else "theirs")
        await rebalanced(test)
        assert await kept.channel.offset_metadata(tp()) == "theirs"


@pytest.mark.parametrize(
    ("deserializer", "text", "value"),
    [
        (None, "plain", "plain"),
        ("string", "plain", "plain"),
        ("json", '{"stage": [1, 2]}', {"stage": [1, 2]}),
        ("int", "-12", -12),
        ("float64", "0.25", 0.25),
        ("bytes", "é", "é".encode()),
        ("tests.app.test_offsets_api:upper", "shout", "SHOUT"),
    ],
)
@in_virtual_time
async def test_the_deserializer_makes_a_value_of_a_string_and_sees_no_empty_one(
    deserializer: str | None, text: str, value: object
) -> None:
    kept = keeping(
        **({} if deserializer is None else {"offset_metadata_deserializer": deserializer})
    )
    async with running(kept.app) as test:
        await send(test, b"")
        await kept.have(1)
        assert await kept.channel.offset_metadata(tp()) == ""
        await kept.messages[0].ack(metadata=text)
        await kept.channel.commit()
        assert await kept.channel.offset_metadata(tp()) == value
        assert await kept.app.offsets("billing").metadata(tp()) == value


@in_virtual_time
async def test_what_it_cannot_read_is_an_error_at_the_read_with_the_cause() -> None:
    kept = keeping(offset_metadata_deserializer="json")
    async with running(kept.app) as test:
        await send(test, b"")
        await kept.have(1)
        await kept.messages[0].ack(metadata="no json")
        await kept.channel.commit()
        with pytest.raises(
            DecodeError, match=r"channel 'orders': the metadata of orders-0 .* 'json'"
        ) as told:
            await kept.channel.offset_metadata(tp())
        assert isinstance(told.value.__cause__, json.JSONDecodeError)
        with pytest.raises(DecodeError, match="orders-0"):
            await kept.app.offsets("billing").metadata(("orders", 0))


def test_a_deserializer_that_is_none_stops_the_start_up() -> None:
    app = make_app(offset_metadata_deserializer="tests.app.test_offsets_api:nowhere")
    with pytest.raises(ConfigError, match=r"offset_metadata_deserializer.*has no 'nowhere'"):
        app.configure()


async def test_a_handler_in_a_thread_stores_metadata() -> None:
    app, told = make_app(), list[tuple[bool, bool]]()
    ours = threading.get_ident()

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        stored = app.channel("orders").store_offset_metadata(
            message.topic_partition, "from a thread"
        )
        told.append((threading.get_ident() != ours, stored))

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        assert await app.channel("orders").offset_metadata(tp()) == "from a thread"
    assert told == [(True, True)]


@in_virtual_time
async def test_with_a_store_positions_and_strings_are_those_in_it() -> None:
    rows, told = Rows(), list[Any]()

    def storing(kept: list[Message[bytes]]) -> App:
        app = app_on(rows, commit_interval="5s", drain_timeout="100ms", ack="manual")
        keep_messages(app, kept)

        @app.on_assigned("orders")
        async def assigned(partitions: frozenset[TopicPartition]) -> None:
            channel = app.channel("orders")
            told.append((await channel.committed(), await channel.offset_metadata(tp())))

        return app

    broker, kept = make_broker(1), list[Message[bytes]]()
    async with running(first := storing(kept), broker=broker) as test:
        await send(test, b"", b"", b"")
        await until(lambda: len(kept) == 3)
        assert await first.channel("orders").ack_up_to(kept[1], metadata="stage 2")
        await first.channel("orders").commit()
        assert row(rows).position == 2
        assert await first.channel("orders").committed() == {tp(): 2}
        assert await first.channel("orders").offset_metadata(tp()) == "stage 2"
    async with running(second := storing(kept), broker=broker):
        await until(lambda: len(kept) == 4)
        assert await second.channel("orders").offset_metadata(tp()) == "stage 2"
    assert told == [({tp(): None}, ""), ({tp(): 2}, "stage 2")]
    assert kept[3].offset == 2


# -- of any group


@in_virtual_time
async def test_any_groups_positions_and_strings_can_be_read_without_our_own_part_of_them() -> None:
    kept = keeping()
    broker = make_broker(2)
    ours = text_with_plans(4, (4, 9), user="their stage")
    async with running(kept.app, broker=broker):
        broker._state.group("shipping").commit(
            "", -1, {tp(0): Committed(4, ours), tp(1): Committed(2)}
        )
        group = kept.app.offsets("shipping")
        assert await group.positions() == {tp(0): 4, tp(1): 2}
        assert await group.metadata(tp(0)) == "their stage"
        assert await group.metadata(("orders", 1)) == ""
        assert await group.metadata(("orders", 7)) == ""
        assert await kept.app.offsets("nobody").positions() == {}


@in_virtual_time
async def test_an_application_that_is_not_started_and_has_no_such_channel_can_ask() -> None:
    broker = make_broker(1)
    broker.create_topic("orders", 1)
    broker._state.group("billing").commit("", -1, {tp(): Committed(3, "stage")})
    app = App({})
    app._connector = broker.connector()
    assert await app.offsets("billing").positions() == {tp(): 3}
    assert await app.offsets("billing").metadata(tp()) == "stage"
    await broker.close()


async def test_the_embedded_broker_of_an_application_that_is_not_running_cannot_be_asked() -> None:
    app = App({"kafka": {"bootstrap_servers": "embedded"}})
    with pytest.raises(BrokerError, match="not running"):
        app.offsets("billing")


@pytest.mark.kafka
async def test_all_of_it_on_a_real_cluster(kafka: str) -> None:
    topic = group = f"offsets-{uuid4().hex[:8]}"
    place, connector = TopicPartition(topic, 0), clients_of(kafka)
    inspector, producer = (
        connector.inspector(properties={}),
        connector.producer(name="test", properties={}),
    )
    await inspector.start()
    await inspector.create_topic(topic, 1)
    await producer.start()

    async def write(count: int) -> None:
        for _ in range(count):
            await (await producer.send(topic, b"1", partition=0))

    kept = keeping(
        topic=topic,
        group_id=group,
        offset_metadata_cache=False,
        offset_metadata_deserializer="json",
    )
    kept.app.configure(
        overrides={"kafka": {"bootstrap_servers": kafka}, "http": {"enabled": False}}
    )
    await write(4)
    async with kept.app:
        await kept.have(4)
        for message in kept.messages[:3]:
            message.ack()
        assert kept.channel.store_offset_metadata(place, '{"stage": 2}')
        await kept.channel.commit({place: 2})
        assert await kept.channel.committed() == {place: 2}
        assert await kept.channel.lag() == {place: 2}
        assert await kept.channel.offset_metadata(place) == {"stage": 2}
        with pytest.raises(CommitRefusedError, match="the record at offset 3 is not settled"):
            await kept.channel.commit({place: 4})

        kept.channel.pause()
        # The poll that is on its way ends.
        await asyncio.sleep(0)
        await write(2)
        assert await kept.channel.ack_up_to(kept.messages[3], metadata='"marked"')
        await kept.channel.commit()
        assert await kept.channel.offset_metadata(place) == "marked"
        await until(lambda: kept.channel.facts().partitions[0].log_end == 6)
        assert len(kept.messages) == 4
        kept.channel.resume()
        await kept.have(6)
    assert await kept.app.offsets(group).positions() == {place: 4}
    assert await kept.app.offsets(group).metadata(place) == "marked"
    assert (
        await App({"kafka": {"bootstrap_servers": kafka}}).offsets(group).metadata(place)
        == '"marked"'
    )
    await producer.stop()
    await inspector.stop()


@in_virtual_time
async def test_a_channel_shows_what_is_its_users_and_nothing_else() -> None:
    async with running(make_app()) as test:
        channel = test.app.channel("orders")
        assert isinstance(channel, Channel)
        assert channel is test.app.channel("orders")
        assert channel.name == "orders"
        assert repr(channel) == "<Channel 'orders'>"
        assert [name for name in dir(channel) if not name.startswith("_")] == [
            "ack_up_to",
            "assignment",
            "commit",
            "committed",
            "facts",
            "handled",
            "in_flight",
            "is_ready",
            "is_started",
            "is_stopped",
            "lag",
            "name",
            "offset_metadata",
            "pause",
            "paused",
            "restart",
            "resume",
            "seek",
            "skip",
            "start",
            "stop",
            "store_offset_metadata",
        ]
