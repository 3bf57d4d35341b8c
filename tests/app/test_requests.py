"""Requests and replies: each request gets its own reply, or is told in time that there is none."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from reactive_kafka import (
    App,
    Batch,
    ChannelClosedError,
    ConfigError,
    DecodeError,
    EncodeError,
    Record,
    RejectedRecordError,
    ReplyTimeoutError,
    TransientBrokerError,
)
from reactive_kafka.events import BrokerAvailable, BrokerUnavailable, ChannelFailed, RecordIgnored
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.brokers import StoredRecord
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_broker,
    now,
    running,
    settle_down,
    tp,
    until,
)
from tests.app.sabotage import Sabotage

# The headers of requests and replies, as other libraries know them.
CORRELATION_ID = "REPLY_CORRELATION_ID"
TOPIC = "REPLY_TOPIC"
PARTITION = "REPLY_PARTITION"

IGNORED = {"failure_strategy": "ignore"}


def asking_app(recorder: Recorder | None = None, *, handles: bool = True, **requests: Any) -> App:
    """Asks for the double of a number, and answers itself."""
    app = App(
        {
            "incoming": {
                "asked": {
                    "topic": "requests",
                    "group_id": "answers",
                    "auto_offset_reset": "earliest",
                    **IGNORED,
                }
            },
            "outgoing": {"requests": requests, "answers": {}},
        },
        observer=recorder,
    )

    async def double(number: int) -> int:
        return number * 2

    async def nothing(number: int) -> None: ...

    if handles:
        app.outgoing("answers")(double)
    app.incoming("asked")(double if handles else nothing)
    return app


def request_of(test: TestApp, number: int = 0) -> dict[str, bytes | None]:
    """The headers of a request that was sent."""
    return dict(test.records("requests")[number].headers)


def answer(test: TestApp, value: bytes | None, of: bytes | None, partition: int = 0) -> None:
    test.broker.produce(
        "requests-replies", value, partition=partition, headers=[(CORRELATION_ID, of)]
    )


async def test_a_request_gets_the_reply_to_it() -> None:
    app = asking_app()
    async with running(app, partitions=3) as test:
        test.broker.produce("requests-replies", b"0", headers=[(CORRELATION_ID, b"old")])
        emitter = app.emitter("requests")
        assert (
            await emitter.request(21, key="k", headers=[("h", b"1"), (PARTITION, b"of another")])
            == 42
        )
        assert await emitter.request(Record(4, partition=2)) == 8
        (first,) = (record for record in test.records("requests") if record.value == b"21")
        assert (first.key, first.headers[0]) == (b"k", ("h", b"1"))
        assert [record.value for record in test.broker.log(tp(2, "requests"))][-1] == b"4"
        sent = dict(first.headers)
        assert sent.keys() == {"h", CORRELATION_ID, TOPIC}
        assert sent[TOPIC] == b"requests-replies"
        assert [dict(one.headers).keys() for one in test.records("requests-replies")] == [
            {CORRELATION_ID}
        ] * 3
        assert test.records("answers") == []


@dataclass
class Answer:
    text: str


@pytest.mark.parametrize(
    ("serializer", "reply_type", "reply", "value"),
    [
        (None, Any, b'{"text":"a"}', {"text": "a"}),
        (None, Answer, b'{"text":"a"}', Answer("a")),
        (None, bytes, b"\xff", b"\xff"),
        (None, str, b"a", "a"),
        ("json", str, b'"a"', "a"),
        ("int64", int, b"\0\0\0\0\0\0\0\7", 7),
        ("math:sqrt", Answer, b'{"text":"a"}', Answer("a")),
        (None, Answer | None, None, None),
        (None, Any, None, None),
    ],
)
async def test_a_reply_is_read_in_the_channels_format_as_the_type_that_is_asked_for(
    serializer: str | None, reply_type: Any, reply: bytes | None, value: Any
) -> None:
    given = {} if serializer is None else {"value_serializer": serializer}
    app = asking_app(handles=False, reply_topic="elsewhere", **given)
    async with running(app) as test:
        asking = asyncio.create_task(app.emitter("requests").request(None, reply_type=reply_type))
        await until(lambda: test.records("requests"))
        sent = request_of(test)
        assert sent[TOPIC] == b"elsewhere"
        test.broker.produce("elsewhere", reply, headers=[(CORRELATION_ID, sent[CORRELATION_ID])])
        assert await asking == value


@pytest.mark.parametrize(
    ("reply_type", "reply"), [(Answer, b'{"txt":1}'), (bytes, None), (int, b"x")]
)
async def test_a_reply_that_does_not_fit_is_told_to_whoever_asked(
    reply_type: Any, reply: bytes | None
) -> None:
    app = asking_app(handles=False)
    async with running(app) as test:
        asking = asyncio.create_task(app.emitter("requests").request(1, reply_type=reply_type))
        await until(lambda: test.records("requests"))
        answer(test, reply, request_of(test)[CORRELATION_ID])
        with pytest.raises(DecodeError):
            await asking


async def test_what_can_never_be_asked_is_told_at_once() -> None:
    app = asking_app(value_serializer="int64")
    async with running(app) as test:
        emitter = app.emitter("requests")
        for wrong in ({"timeout": 0}, {"timeout": "soon"}, {"timeout": -1}, {"reply_type": str}):
            with pytest.raises(ConfigError, match=r"app.emitter\('requests'\).request\(timeout="):
                await emitter.request(1, **wrong)  # type: ignore[arg-type]
        with pytest.raises(EncodeError):
            await emitter.request("text")
        with pytest.raises(TypeError, match="a Record says its key"):
            await emitter.request(Record(1), key="k")
        with pytest.raises(RejectedRecordError, match="requests-9 does not exist"):
            await emitter.request(Record(1, partition=9))
        assert test.records("requests") == []
    with pytest.raises(ChannelClosedError):
        await emitter.request(1)


@pytest.mark.parametrize("seed", range(10))
@in_virtual_time
async def test_many_requests_at_once_get_each_its_own_reply_in_whatever_order_these_come(
    seed: int,
) -> None:
    chance = random.Random(seed)
    app = asking_app(handles=False, max_in_flight=40)
    async with running(app, partitions=3) as test:
        answered = set[bytes]()
        most = 0

        async def reply() -> None:
            nonlocal most
            while len(answered) < 200:
                open_ones = [
                    (record, of)
                    for record in test.records("requests")
                    if (of := dict(record.headers)[CORRELATION_ID]) is not None
                    and of not in answered
                ]
                most = max(most, len(open_ones))
                for record, of in chance.sample(
                    open_ones, len(open_ones) // 2 + (len(open_ones) == 1)
                ):
                    assert record.value is not None
                    # Whoever answers may do so twice.
                    for _ in range(chance.choice([1, 1, 2])):
                        answer(test, b"-" + record.value, of, chance.randrange(3))
                    answer(test, b"0", b"of another process", chance.randrange(3))
                    answered.add(of)
                await asyncio.sleep(chance.choice([0, 0.01, 0.1]))

        replying = asyncio.create_task(reply())
        replies = await asyncio.gather(
            *(app.emitter("requests").request(n, timeout="1h") for n in range(1, 201))
        )
        await replying
        assert replies == [-n for n in range(1, 201)]
        assert 20 < most <= 40


@in_virtual_time
async def test_late_replies_to_the_last_thousand_requests_are_known_and_no_earlier_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="reactive_kafka")
    app = asking_app(handles=False, max_in_flight=2000)
    async with running(app) as test:
        emitter = app.emitter("requests")
        ends = await asyncio.gather(
            *(emitter.request(number, timeout="1s") for number in range(1001)),
            return_exceptions=True,
        )
        assert {type(end) for end in ends} == {ReplyTimeoutError}
        for number in (0, 1, 1, 1000):
            answer(test, b"late", request_of(test, number)[CORRELATION_ID])
        await asyncio.sleep(2)
        late = [one for one in caplog.messages if "a reply came too late" in one]
        assert len(late) == 2, "the first request is forgotten, and each reply is told once"


@in_virtual_time
async def test_a_request_without_a_reply_is_over_in_time_and_what_comes_late_is_nobodys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="reactive_kafka")
    app = asking_app(handles=False)
    async with running(app) as test:
        emitter, began = app.emitter("requests"), now()
        with pytest.raises(
            ReplyTimeoutError, match=r"^requests: no reply in requests-replies within 5 s$"
        ) as raised:
            await emitter.request(1)
        assert 4.99 < now() - began < 5.2
        assert isinstance(raised.value, TimeoutError)
        with pytest.raises(ReplyTimeoutError, match=r"within 0.5 s"):
            await emitter.request(2, timeout="500ms")
        asking = asyncio.create_task(emitter.request(3))
        await until(lambda: len(test.records("requests")) == 3)
        answer(test, b"1", request_of(test, 0)[CORRELATION_ID])
        await asyncio.sleep(1)
        assert not asking.done()
        answer(test, b"3", request_of(test, 2)[CORRELATION_ID])
        assert await asking == 3
        late = [one for one in caplog.messages if "a reply came too late" in one]
        assert len(late) == 1
        assert str(request_of(test, 0)[CORRELATION_ID], "ascii") in late[0]


@in_virtual_time
async def test_who_waits_for_room_is_over_in_time_and_leaves_no_request() -> None:
    app = asking_app(handles=False, max_in_flight=2)
    async with running(app) as test:
        emitter = app.emitter("requests")
        first = [asyncio.create_task(emitter.request(n, timeout=20)) for n in range(2)]
        await until(lambda: len(test.records("requests")) == 2)
        with pytest.raises(ReplyTimeoutError):
            await emitter.request(2, timeout=3)
        assert len(test.records("requests")) == 2
        first[0].cancel()
        waiting = asyncio.create_task(emitter.request(3))
        await until(lambda: len(test.records("requests")) == 3)
        answer(test, b"9", request_of(test, 2)[CORRELATION_ID])
        assert await waiting == 9
        first[1].cancel()
        assert [type(one) for one in await asyncio.gather(*first, return_exceptions=True)] == [
            asyncio.CancelledError,
            asyncio.CancelledError,
        ]


async def test_other_threads_ask() -> None:
    app = asking_app()
    emitter = app.emitter("requests")
    replies = list[int]()

    def ask(number: int) -> None:
        replies.append(asyncio.run(emitter.request(number, reply_type=int)))

    async with running(app, partitions=2):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
    assert sorted(replies) == [number * 2 for number in range(8)]


@in_virtual_time
async def test_requests_to_a_broker_that_is_away_end_in_time_and_later_ones_are_answered() -> None:
    recorder = Recorder()
    app = asking_app(recorder)
    broker = make_broker()
    async with running(app, broker=broker):
        emitter = app.emitter("requests")
        broker.down = True
        with pytest.raises(ReplyTimeoutError, match="no reply in requests-replies within 5 s: "):
            await emitter.request(1)
        broker.down = False
        assert await emitter.request(2, timeout=60) == 4
        (away,) = [one for one in recorder.of(BrokerUnavailable) if one.channel == "requests"]
        assert away.reason.startswith("no replies are read from requests-replies: ")
        assert [one.channel for one in recorder.of(BrokerAvailable)].count("requests") == 1
        broker.down = True
        with pytest.raises(ReplyTimeoutError):
            await emitter.request(3)
        broker.down = False
        assert await emitter.request(4, timeout=60) == 8


@in_virtual_time
async def test_what_arrives_while_the_reader_makes_another_client_is_not_lost() -> None:
    app = asking_app(handles=False)
    async with running(app) as test:
        asking = asyncio.create_task(app.emitter("requests").request(1, timeout=60))
        await until(lambda: test.records("requests"))
        test.broker.fail_next("topics", TransientBrokerError("broken"))
        held = test.broker.hold("start")
        # Another client starts.
        await held.arrived()
        answer(test, b"1", request_of(test)[CORRELATION_ID])
        held.release()
        assert await asking == 1


@in_virtual_time
async def test_a_reply_in_a_partition_that_is_new_arrives() -> None:
    app = asking_app(handles=False)
    async with running(app) as test:
        asking = asyncio.create_task(app.emitter("requests").request(1, timeout=30))
        await until(lambda: test.records("requests"))
        test.broker.delete_topic("requests-replies")
        test.broker.create_topic("requests-replies", 3)
        answer(test, b"7", request_of(test)[CORRELATION_ID], partition=2)
        assert await asking == 7


@in_virtual_time
async def test_replies_that_were_deleted_before_they_were_read_cost_only_their_requests() -> None:
    app = asking_app(handles=False)
    async with running(app) as test:
        emitter = app.emitter("requests")
        with pytest.raises(ReplyTimeoutError):
            await emitter.request(1)
        held = test.broker.hold("topics")
        asking = asyncio.create_task(emitter.request(2, timeout=60))
        await held.arrived()
        for _ in range(3):
            answer(test, b"0", b"unknown")
        test.broker.delete_records(tp(0, "requests-replies"), 2)
        answer(test, b"5", request_of(test, 1)[CORRELATION_ID])
        held.release()
        assert await asking == 5


@in_virtual_time
async def test_a_request_that_was_given_up_is_not_written_later() -> None:
    app = asking_app()
    async with running(app) as test:
        emitter = app.emitter("requests")
        assert await emitter.request(1) == 2
        test.broker.topic_away("requests")
        with pytest.raises(ReplyTimeoutError, match="within 5 s: topic 'requests' of"):
            await emitter.request(2)
        test.broker.topic_back("requests")
        assert await emitter.request(3, timeout=60) == 6
        assert [record.value for record in test.records("requests")] == [b"1", b"3"]


@in_virtual_time
async def test_a_reply_topic_that_nobody_creates_is_told_in_the_error() -> None:
    app = asking_app(handles=False, reply_topic="nowhere")
    loop = asyncio.get_running_loop()
    broker = MemoryBroker(loop.clock, partitions=1, auto_create=False)  # type: ignore[attr-defined]
    broker.create_topic("requests", 1)
    broker.create_topic("answers", 1)
    async with running(app, broker=broker) as test:
        with pytest.raises(
            ReplyTimeoutError,
            match="topic 'nowhere' does not exist, and the broker does not create",
        ):
            await app.emitter("requests").request(1)
        # Or its reply could be lost.
        assert test.records("requests") == []
        broker.create_topic("nowhere", 1)
        asking = asyncio.create_task(app.emitter("requests").request(2, timeout=60))
        await until(lambda: test.records("requests"), 60)
        broker.produce(
            "nowhere", b"2", headers=[(CORRELATION_ID, request_of(test)[CORRELATION_ID])]
        )
        assert await asking == 2


@in_virtual_time
async def test_a_stop_tells_all_that_wait_and_closes_the_reader() -> None:
    app = asking_app(handles=False, max_in_flight=3)
    async with running(app) as test:
        asking = [
            asyncio.create_task(app.emitter("requests").request(n, timeout=600)) for n in range(6)
        ]
        await until(lambda: len(test.records("requests")) == 3)
        await app.stop()
        ends = await asyncio.gather(*asking, return_exceptions=True)
        assert [str(one) for one in ends] == ["outgoing channel 'requests' has stopped"] * 6
        assert {type(one) for one in ends} == {ChannelClosedError}
    await settle_down()
    assert [task.get_name() for task in asyncio.all_tasks() if "repl" in task.get_name()] == []


@in_virtual_time
async def test_a_stop_before_the_reader_has_found_its_place_tells_who_waits() -> None:
    app = asking_app(handles=False)
    async with running(app) as test:
        held = test.broker.hold("end_offsets", of=None)
        asking = asyncio.create_task(app.emitter("requests").request(1, timeout=600))
        await held.arrived()
        await app.stop()
        with pytest.raises(ChannelClosedError):
            await asking
        assert test.records("requests") == []


@pytest.mark.parametrize("wait_for_write", [True, False])
async def test_a_reply_goes_where_the_request_says_and_a_record_with_a_topic_where_that_says(
    wait_for_write: bool,
) -> None:
    app = App(
        {
            "incoming": {"requests": {"group_id": "g", "auto_offset_reset": "earliest"}},
            "outgoing": {
                "answers": {
                    "wait_for_write": wait_for_write,
                    "propagate_headers": [CORRELATION_ID, "trace"],
                }
            },
        }
    )

    @app.incoming("requests")
    @app.outgoing("answers")
    async def handle(value: str) -> Record:
        if value == "elsewhere":
            return Record(value, topic="elsewhere")
        own = [(CORRELATION_ID, b"own")] if value == "own" else []
        return Record(value, key="k", headers=own, partition=0)

    async with running(app, partitions=3) as test:
        asked = [(TOPIC, b"mine"), (CORRELATION_ID, b"7"), ("trace", b"t")]
        await test.send("requests", "plain")
        await test.send("requests", "half", headers=asked[:1])
        await test.send("requests", "any", headers=asked)
        await test.send("requests", "own", headers=asked)
        await test.send("requests", "second", headers=[*asked, (PARTITION, b"\0\0\0\2")])
        await test.send("requests", "elsewhere", headers=asked)
        await test.settled()
        written = {
            record.value: (topic, partition, list(record.headers))
            for topic in ("answers", "mine", "elsewhere")
            for partition in range(3)
            for record in test.broker.log(tp(partition, topic))
        }
    copied = [(CORRELATION_ID, b"7"), ("trace", b"t")]
    assert written[b"plain"] == ("answers", 0, [])
    assert written[b"half"] == ("answers", 0, [])
    assert written[b"any"] == ("mine", 0, copied)
    assert written[b"own"] == ("mine", 0, [("trace", b"t"), (CORRELATION_ID, b"own")])
    assert written[b"second"] == ("mine", 2, copied)
    assert written[b"elsewhere"][0] == "elsewhere"


@pytest.mark.parametrize("wait_for_write", [True, False])
async def test_a_request_that_nothing_can_be_sent_to_is_a_nack_and_the_next_one_is_answered(
    wait_for_write: bool,
) -> None:
    recorder = Recorder()
    app = App(
        {
            "incoming": {"requests": {"group_id": "g", "auto_offset_reset": "earliest", **IGNORED}},
            "outgoing": {"answers": {"wait_for_write": wait_for_write}},
        },
        observer=recorder,
    )

    @app.incoming("requests")
    @app.outgoing("answers")
    async def handle(value: bytes) -> bytes:
        return value

    fine = {TOPIC: b"mine", CORRELATION_ID: b"1"}
    wrong: dict[str, dict[str, bytes | None]] = {
        "REPLY_TOPIC: not UTF-8": {TOPIC: b"\xff"},
        "no topic can be called so": {TOPIC: b"a b"},
        "REPLY_PARTITION: b'1' is no partition": {PARTITION: b"1"},
        "mine-9 does not exist": {PARTITION: b"\0\0\0\x09"},
        "REPLY_CORRELATION_ID: it has no value": {CORRELATION_ID: None},
    }
    async with running(app) as test:
        for changed in wrong.values():
            await test.send("requests", b"bad", headers=(fine | changed).items())
        await test.send("requests", b"good", headers=fine.items())
        await test.settled()
        assert [record.value for record in test.records("mine")] == [b"good"]
        reasons = [event.reason for event in recorder.of(RecordIgnored)]
        assert len(reasons) == len(wrong)
        assert all(any(text in reason for reason in reasons) for text in wrong)
        assert recorder.of(ChannelFailed) == []


@in_virtual_time
async def test_a_handler_that_raises_answers_nobody_and_a_batch_has_no_single_origin() -> None:
    app = App(
        {
            "incoming": {
                "requests": {"group_id": "g", "auto_offset_reset": "earliest", **IGNORED},
                "batches": {"group_id": "h", "auto_offset_reset": "earliest"},
            },
            "outgoing": {"requests": {}, "batches": {}, "answers": {}},
        }
    )

    @app.incoming("requests")
    @app.outgoing("answers")
    async def handle(value: int) -> int:
        raise ValueError(value)

    @app.incoming("batches")
    @app.outgoing("answers")
    async def handle_batch(batch: Batch[int]) -> int:
        return len(batch.payloads)

    async with running(app) as test:
        for name in ("requests", "batches"):
            with pytest.raises(ReplyTimeoutError):
                await app.emitter(name).request(1)
        assert [record.value for record in test.records("answers")] == [b"1"]


@pytest.mark.parametrize(
    ("waits", "answers", "replies"),
    [
        (True, {}, [b"2"]),
        (False, {}, []),
        (True, {"transactional_id": "answers"}, []),
    ],
)
@in_virtual_time
async def test_a_generator_that_raises_has_replied_if_its_reply_was_written_before(
    waits: bool, answers: dict[str, str], replies: list[bytes]
) -> None:
    app = App(
        {
            "incoming": {"requests": {"group_id": "g", "auto_offset_reset": "earliest", **IGNORED}},
            "outgoing": {"requests": {}, "answers": answers},
        }
    )

    @app.incoming("requests")
    @app.outgoing("answers")
    async def handle(value: int) -> AsyncIterator[int]:
        yield value * 2
        if waits:
            await asyncio.sleep(1)
        raise ValueError(value)

    async with running(app) as test:
        if replies:
            assert await app.emitter("requests").request(1) == 2
        else:
            with pytest.raises(ReplyTimeoutError):
                await app.emitter("requests").request(1)
        written = test.broker.committed_log(tp(0, "requests-replies"))
        assert [record.value for record in written] == replies


@in_virtual_time
async def test_a_reply_that_was_written_in_a_transaction_which_was_aborted_is_none() -> None:
    app = App(
        {
            "incoming": {
                "asked": {"topic": "requests", "group_id": "g", "auto_offset_reset": "earliest"}
            },
            "outgoing": {"requests": {}, "answers": {"transactional_id": "answers"}},
        }
    )
    calls: list[int] = []

    @app.incoming("asked")
    @app.outgoing("answers")
    async def handle(number: int) -> int:
        calls.append(number)
        return len(calls)

    async with running(app) as test:
        test.broker.fail_next("commit_in", TransientBrokerError("away"))
        assert await app.emitter("requests").request(7) == 2
        assert [record.value for record in test.broker.log(tp(0, "requests-replies"))] == [
            b"1",
            b"2",
        ]


@pytest.mark.parametrize("error", [ZeroDivisionError("sabotage"), asyncio.CancelledError()])
@in_virtual_time
async def test_a_reader_that_goes_wrong_is_its_channels_failure(error: BaseException) -> None:
    recorder = Recorder()
    app = asking_app(recorder, handles=False)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(Sabotage("replies of requests", error))
    try:
        async with running(app):
            with pytest.raises(ReplyTimeoutError):
                await app.emitter("requests").request(1)
            assert [event.channel for event in recorder.of(ChannelFailed)] == ["requests"]
            assert app.health().live.status == "DOWN"
    finally:
        loop.set_task_factory(None)


@in_virtual_time
async def test_a_reply_in_the_moment_in_which_the_time_is_over_counts() -> None:
    app = asking_app(handles=False)
    async with running(app) as test:
        emitter = app.emitter("requests")
        with pytest.raises(ReplyTimeoutError):
            # The reader has begun.
            await emitter.request(0)
        asking = asyncio.create_task(emitter.request(1))
        began = now()
        await until(lambda: len(test.records("requests")) == 2)
        assert app._run is not None
        assert app._run.channels is not None
        requests = app._run.channels.outgoing["requests"].requests
        of = request_of(test, 1)[CORRELATION_ID]
        record = StoredRecord(0, None, None, b"1", [(CORRELATION_ID, of)])
        asyncio.get_running_loop().call_at(began + 5 - 1e-10, requests._reply, record)
        assert await asking == 1
