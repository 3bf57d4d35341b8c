"""Each request that a consumer makes, answered with each error that a broker may give."""

from __future__ import annotations

import struct
from collections import Counter
from typing import NamedTuple

import pytest

from reactive_kafka.broker.kafka_connector import KafkaConnector
from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import Rig, until


class Api(NamedTuple):
    """A request, and what a broker answers it with for a while."""

    key: int
    name: str
    passing: tuple[int, ...]
    fatal: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        return self.name


TIMED_OUT = 7
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
NOT_ALLOWED = (30, "GroupAuthorizationFailedError")
MEMBER_NOT_ALLOWED = (30, "GROUP_AUTHORIZATION_FAILED")
SERVER_ERROR = (-1, "[Error -1]")
NEW_TO_AIOKAFKA = (91, "[Error 91] RESOURCE_NOT_FOUND")
KNOWN_TO_NOBODY = (999, "[Error 999]")
REFUSED = (SERVER_ERROR, NEW_TO_AIOKAFKA, KNOWN_TO_NOBODY)
"""Of every request: codes that Kafka does not call retriable, in aiokafka's list, in Kafka's alone,
and in none.
"""
COMMIT = 8
COORDINATOR = (LOADING, NOT_AVAILABLE, NOT_COORDINATOR)
APIS = (
    Api(1, "Fetch", (3, 5, 6, TIMED_OUT, 9), REFUSED),
    Api(2, "ListOffsets", (3, 5, 6, TIMED_OUT), REFUSED),
    Api(3, "Metadata", (5, TIMED_OUT)),
    Api(COMMIT, "OffsetCommit", (*COORDINATOR, TIMED_OUT, 3), (NOT_ALLOWED, *REFUSED)),
    Api(9, "OffsetFetch", COORDINATOR, (NOT_ALLOWED, *REFUSED)),
    Api(10, "FindCoordinator", (LOADING, NOT_AVAILABLE), (NOT_ALLOWED, *REFUSED)),
    Api(
        11,
        "JoinGroup",
        (*COORDINATOR, 25),
        (
            MEMBER_NOT_ALLOWED,
            (23, "INCONSISTENT_GROUP_PROTOCOL"),
            (24, "INVALID_GROUP_ID"),
            (81, "GROUP_MAX_SIZE_REACHED"),
            *REFUSED,
        ),
    ),
    Api(12, "Heartbeat", (*COORDINATOR, 27, 22, 25), REFUSED),
    Api(
        14,
        "SyncGroup",
        (NOT_AVAILABLE, NOT_COORDINATOR, 22, 25, 27),
        (MEMBER_NOT_ALLOWED, *REFUSED),
    ),
)
SAID = {
    23: "the members of the group have no assignor in common: set assignors to a list that contains "
    "one that all other members offer"
}
"""Where the broker's own words do not say what to change."""
FATAL = [(api, code, name) for api in APIS for code, name in api.fatal]


def counting(rig: Rig) -> Counter[int]:
    """How often each API is asked, from now on."""
    asked: Counter[int] = Counter()

    def see(piece: bytes) -> None:
        while len(piece) >= 6:
            size, key = struct.unpack_from(">ih", piece)
            asked[key] += 1
            piece = piece[4 + size :]

    rig.proxy.requests.watch = see
    return asked


async def produce(rig: Rig, topic: str, *values: bytes) -> None:
    producer = KafkaConnector(rig.broker.bootstrap_servers).producer(name="one", properties={})
    await producer.start()
    for value in values:
        await (await producer.send(topic, value))
    await producer.stop()


TIMES = (1, pytest.param(4, marks=pytest.mark.long_faults))


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("api", APIS, ids=str)
async def test_an_error_that_passes_is_asked_again_and_costs_no_record(
    rig: Rig, group: str, api: Api, times: int
) -> None:
    """Row A11 of the faults."""
    topic = await rig.create_topic(1)
    await produce(rig, topic, b"1", b"2", b"3")
    asked = counting(rig)
    for code in api.passing:
        rig.broker.answer_with(api.key, code, times=times)
    async with running(rig.bootstrap_servers, topic, group) as diary:
        await until(lambda: len(diary.handled) >= 3, "all is handled", 60)
        await until(lambda: diary.committed() == {0: 3}, "all is committed", 40)
        # Waits between attempts grow up to 5 s.
        await until(
            lambda: asked[api.key] > times * len(api.passing), f"{api} is asked again", 40 * times
        )
        await until(lambda: diary.app.health().status == "UP", "it is well", 40)
    assert diary.handled == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("api", "code", "name"), FATAL, ids=[f"{api}-{name}" for api, _, name in FATAL]
)
async def test_an_error_that_does_not_pass_is_told_and_the_right_may_come_later(
    rig: Rig, group: str, api: Api, code: int, name: str
) -> None:
    """Rows A11, J8 of the faults."""
    topic = await rig.create_topic(1)
    await produce(rig, topic, b"1", b"2", b"3")
    rig.broker.answer_with(api.key, code, times=10_000)
    async with running(rig.bootstrap_servers, topic, group) as diary:
        await until(
            lambda: name in str(diary.app.health().ready.to_json()), f"readiness names {name}"
        )
        assert diary.app.health().ready.status == "DOWN"
        assert diary.app.health().live.status == "UP"
        assert SAID.get(code, "") in str(diary.app.health().ready.to_json())
        rig.broker.heal(api.key)
        await until(lambda: diary.committed() == {0: 3}, "it goes on by itself", 40)
        await until(lambda: diary.app.health().status == "UP", "it is well")
    assert diary.handled == [b"1", b"2", b"3"]


REFUSALS = (
    (3, "UnknownTopicOrPartitionError"),
    (TIMED_OUT, "RequestTimedOutError"),
    (LOADING, "GroupLoadInProgressError"),
    (NOT_AVAILABLE, "GroupCoordinatorNotAvailableError"),
    (NOT_COORDINATOR, "NotCoordinatorForGroupError"),
    (28, "InvalidCommitOffsetSizeError"),
    (29, "TopicAuthorizationFailedError"),
    (30, "GroupAuthorizationFailedError"),
)


@pytest.mark.parametrize(("code", "name"), REFUSALS, ids=[name for _, name in REFUSALS])
async def test_while_commits_are_refused_the_window_fills_and_readiness_names_the_code(
    rig: Rig, group: str, code: int, name: str
) -> None:
    """Row A13 of the faults."""
    topic, bound, records = await rig.create_topic(1), 20, 200
    asked = counting(rig)
    await produce(rig, topic, *(b"%d" % number for number in range(records)))
    rig.broker.answer_with(COMMIT, code, times=10_000)
    channel = {"max_uncommitted": bound, "max_in_flight": 5}
    async with running(rig.bootstrap_servers, topic, group, channel) as diary:
        await until(lambda: len(diary.handled) >= bound, "the window fills")
        await until(
            lambda: name in str(diary.app.health().ready.to_json()), f"readiness names {name}"
        )
        await until(
            lambda: "max_uncommitted" in str(diary.app.health().ready.to_json()), "and the bound"
        )
        assert diary.app.health().live.status == "UP"
        before = asked[COMMIT]
        await until(lambda: asked[COMMIT] > before + 3, "commits are tried again and again")
        assert bound <= len(diary.handled) <= bound + 5, "it goes on though nothing is committed"
        assert not any(diary.committed().values())
        rig.broker.heal(COMMIT)
        await until(lambda: diary.committed() == {0: records}, "it goes on by itself", 40)
        await until(lambda: diary.app.health().status == "UP", "it is well")
    assert diary.handled == [b"%d" % number for number in range(records)]
