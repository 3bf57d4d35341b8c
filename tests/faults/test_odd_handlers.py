"""What one record's handler does, raises or waits for costs nobody else anything, and can be found
afterwards.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.faults.driver import ODD_SERVICE, Life, Member, create_topic, create_topics, until
from tests.faults.history import Partition
from tests.faults.letters import Stored
from tests.faults.observer import Observer, read_records
from tests.faults.scenario import Scenario, member, playing

pytestmark = pytest.mark.kafka

PROBES = ("/health", "/health/live", "/health/ready")
# Offset 7; offsets 3-17, 19.
OFFSETS = r"offsets? (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*)"


def service(scenario: Scenario, channel: str, options: Sequence[str] = ()) -> Member:
    return member(scenario, "service", channel=channel, options=options, module=ODD_SERVICE)


def letters_of(scenario: Scenario) -> str:
    """The name of its dead-letter topic."""
    return f"dead-{scenario.topic}"


def dead_letters(scenario: Scenario) -> str:
    """The lines of a channel that writes them."""
    return f'failure_strategy = "dead-letter-queue"\ndead_letter_queue = {{topic = "{letters_of(scenario)}"}}'


async def read_letters(scenario: Scenario) -> list[Stored]:
    """What stands in its dead-letter topic, which has one partition for each of its own."""
    partitions = [(letters_of(scenario), number) for _, number in scenario.partitions]
    log = await read_records(scenario.bootstrap, partitions)
    return [stored for records in log.values() for stored in records.values()]


def headers_of(letter: Stored) -> dict[str, str]:
    return {name: value.decode() for name, value in letter.headers}


async def send(scenario: Scenario, tp: Partition, *what: str) -> None:
    for do in what:
        await scenario.load.send(tp, do)


def handled(life: Life, tp: Partition) -> list[int]:
    """The offsets whose work was done."""
    return [
        event.offset
        for event in life.events
        if event.kind == "end" and event.tp == tp and event.outcome == "ok"
    ]


async def is_committed(scenario: Scenario, life: Life) -> None:
    await until(
        scenario.all_is_committed,
        10,
        "all is committed",
        lambda: f"{scenario.observer.latest}: {life.tail()}",
    )


async def committed(observer: Observer, tp: Partition, offset: int, life: Life) -> None:
    await until(
        lambda: observer.committed(tp) == offset, 10, f"{tp} is committed up to {offset}", life.tail
    )


async def is_up(life: Life) -> None:
    for path in PROBES:
        assert (await life.health(path))[0] == 200, (path, life.tail())


async def stops(life: Life) -> None:
    life.send(signal.SIGTERM)
    assert await life.exited(10) == 0, life.tail()


async def test_an_exception_without_a_text_leaves_one_letter_and_the_service_goes_on(
    kafka: str, tmp_path: Path
) -> None:
    """Row D5 of the faults."""
    async with playing(kafka, tmp_path, partitions=1) as scenario:
        (tp,) = scenario.partitions
        await send(scenario, tp, "work", "be mute", "work")
        mute = service(scenario, dead_letters(scenario))
        # A letter that is written and not noted as such is written again at the next start.
        for _ in range(2):
            life = mute.start()
            await life.ready()
            await send(scenario, tp, "work")
            await is_committed(scenario, life)
            await is_up(life)
            await stops(life)
        assert [*handled(mute.lives[0], tp), *handled(mute.lives[1], tp)] == [0, 2, 3, 4]
        (letter,) = await read_letters(scenario)
        assert headers_of(letter)["dead-letter-offset"] == "1"


async def test_a_letter_after_retries_tells_of_the_last_attempt_alone(
    kafka: str, tmp_path: Path
) -> None:
    async with playing(kafka, tmp_path, partitions=1) as scenario:
        (tp,) = scenario.partitions
        await send(scenario, tp, "fail differently", "work")
        retry = 'retry = {max_attempts = 3, backoff = "10ms"}'
        life = service(scenario, f"{dead_letters(scenario)}\n{retry}").start()
        await life.ready()
        await is_committed(scenario, life)
        assert [event.attempt for event in life.events if event.kind == "begin"] == [1, 2, 3, 1]
        await stops(life)

        (letter,) = await read_letters(scenario)
        headers = headers_of(letter)
        assert headers["dead-letter-exception-class-name"] == "builtins.ValueError"
        assert headers["dead-letter-reason"] == "bad iban"
        assert [name for name in headers if name.startswith("dead-letter-cause")] == []
        log = life.log.read_text()
        # Its traceback.
        assert re.search(r"^ *\| ValueError: bad iban$", log, re.MULTILINE), log
        assert "another exception occurred" not in log
        assert "direct cause" not in log


@pytest.mark.parametrize("strategy", ["ignore", "dead-letter-queue"])
async def test_each_of_many_failures_can_be_found_in_the_log(
    kafka: str, tmp_path: Path, strategy: str
) -> None:
    async with playing(kafka, tmp_path, partitions=2) as scenario:
        channel = (
            dead_letters(scenario)
            if strategy == "dead-letter-queue"
            else 'failure_strategy = "ignore"'
        )
        for _ in range(25):
            for tp in scenario.partitions:
                await send(scenario, tp, "fail")
        life = service(scenario, channel).start()
        await life.ready()
        await is_committed(scenario, life)
        for tp, kind in zip(scenario.partitions, ("ValueError", "KeyError"), strict=True):
            await all_told(life, tp, kind, set(range(25)))
        await stops(life)


async def all_told(life: Life, tp: Partition, kind: str, offsets: set[int]) -> None:
    await until(
        lambda: told(life.log.read_text(), tp, kind) == offsets,
        5,
        f"the log tells of all of {tp}",
        lambda: f"only of {told(life.log.read_text(), tp, kind)}: {life.tail()}",
    )


def told(log: str, tp: Partition, kind: str) -> set[int]:
    """The offsets of a partition that lines name beside the class of an error, one by one or as
    ranges.
    """
    place = re.compile(re.escape(f"{tp[0]}-{tp[1]} ") + OFFSETS)
    texts = [text for line in log.splitlines() if kind in line for text in place.findall(line)]
    runs = [run for text in texts for run in text.split(", ")]
    bounds = [[int(bound) for bound in run.split("-")] for run in runs]
    return {offset for bound in bounds for offset in range(bound[0], bound[-1] + 1)}


@pytest.mark.parametrize("odd", ["cancel itself", "time out by hand"])
async def test_a_cancellation_of_the_handlers_own_fails_its_record_alone(
    kafka: str, tmp_path: Path, odd: str
) -> None:
    """Row D6 of the faults."""
    async with playing(kafka, tmp_path, partitions=1) as scenario:
        (orders,) = scenario.partitions
        (others,) = await create_topic(kafka, f"others-{scenario.topic}", 1)
        what = ("work", odd, "work", "time out", "await what was cancelled", "work")
        # Before it starts: one worker gets them all.
        for tp in (orders, others):
            await send(scenario, tp, *what)
        life = service(scenario, f"{dead_letters(scenario)}\n{ignoring_channel(others)}").start()
        await life.ready()
        async with Observer(kafka, others[0], [others]).watching() as observer:
            await committed(scenario.observer, orders, 6, life)
            await committed(observer, others, 6, life)
            for tp in (orders, others):
                await send(scenario, tp, "work")
            await committed(scenario.observer, orders, 7, life)
            await committed(observer, others, 7, life)
        for tp in (orders, others):
            assert [
                event.offset for event in life.events if event.kind == "begin" and event.tp == tp
            ] == list(range(7))
            assert handled(life, tp) == [0, 2, 5, 6]
        await is_up(life)
        await stops(life)
        # run() has returned, and raised nothing.
        assert life.count("stop") == 1
        letters = sorted(
            (headers_of(letter) for letter in await read_letters(scenario)), key=offset_of
        )
        assert [offset_of(letter) for letter in letters] == [1, 3, 4]
        first = "TimeoutError" if odd == "time out by hand" else "CancelledError"
        kinds = [
            letter["dead-letter-exception-class-name"].rpartition(".")[2] for letter in letters
        ]
        assert kinds == [first, "TimeoutError", "CancelledError"]


def ignoring_channel(tp: Partition) -> str:
    """Another channel of the same service."""
    return f"""
[incoming.others]
topic = "{tp[0]}"
group_id = "{tp[0]}"
commit_interval = "300ms"
auto_offset_reset = "earliest"
value_deserializer = "json"
failure_strategy = "ignore"
"""


def offset_of(letter: dict[str, str]) -> int:
    return int(letter["dead-letter-offset"])


async def test_what_comes_behind_a_nack_waits_for_its_letter_though_the_handler_does_not(
    kafka: str, tmp_path: Path
) -> None:
    async with playing(kafka, tmp_path, partitions=1) as scenario:
        (tp,) = scenario.partitions
        letters = letters_of(scenario)
        # Refuses what has no key.
        closed = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
        await create_topics(kafka, [NewTopic(letters, 1, 1, topic_configs=closed)])
        await send(scenario, tp, "nack under a timeout", "work", "work")
        life = service(scenario, dead_letters(scenario), ["--ack", "manual"]).start()
        await life.probe_shows("/health/started", 200, 20)
        await until(lambda: life.count("end") >= 1, 10, "its handler has given up", life.tail)
        # In which the others must not begin.
        await asyncio.sleep(1)
        assert [
            (event.kind, event.offset, event.outcome) for event in life.events if event.offset >= 0
        ] == [
            ("begin", 0, ""),
            ("end", 0, "failed"),
        ]
        await life.probe_shows("/health/ready", 503, 5)

        await configure(kafka, letters, {**closed, "cleanup.policy": "delete"})
        await until(lambda: life.count("end") == 3, 20, "the others are handled", life.tail)
        (letter,) = await read_letters(scenario)
        headers = headers_of(letter)
        assert (headers["dead-letter-offset"], headers["dead-letter-reason"]) == (
            "0",
            "nobody waits for its letter",
        )
        assert letter.t <= min(
            event.t for event in life.events if event.kind == "begin" and event.offset > 0
        )
        await life.ready()


async def configure(bootstrap: str, topic: str, settings: dict[str, str]) -> None:
    """Give a topic other settings."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])
    finally:
        await admin.close()
