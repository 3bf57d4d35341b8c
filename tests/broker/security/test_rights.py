"""Each right that is missing is named, with what it is missing on; granted later, it goes on, and
nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App, BrokerError, Message, TopicPartition
from tests.broker.hazards.faults import until
from tests.broker.security.guarded import Guarded, Right
from tests.broker.security.service import QUICKLY, Service
from tests.cli.connecting import connect_report

pytestmark = pytest.mark.kafka

USER = "dave"
READ_ORDERS, SEE_ORDERS = ("READ", "TOPIC", "orders"), ("DESCRIBE", "TOPIC", "orders")
JOIN, SEE_GROUP = ("READ", "GROUP", "group"), ("DESCRIBE", "GROUP", "group")
WRITE_LETTERS, SEE_LETTERS = ("WRITE", "TOPIC", "letters"), ("DESCRIBE", "TOPIC", "letters")
WRITE_RESULTS, SEE_RESULTS = ("WRITE", "TOPIC", "results"), ("DESCRIBE", "TOPIC", "results")
TRANSACT = ("WRITE", "TRANSACTIONAL_ID", "group")
IDEMPOTENT = ("IDEMPOTENT_WRITE", "BROKER", "kafka-cluster")
NEEDED = {READ_ORDERS, JOIN, WRITE_LETTERS}
NEEDED_BY_TRANSACTIONS = {*NEEDED, WRITE_RESULTS, TRANSACT}


class Rights:
    """The user's rights on what a service uses."""

    def __init__(self, guarded: Guarded, service: Service) -> None:
        self._guarded = guarded
        self._names = {
            "orders": service.topic,
            "letters": service.letters,
            "results": service.results,
            "group": service.group,
        }
        self._given: set[Right] = set()

    def grant(self, *rights: Right) -> None:
        """Give rights; the names in them are the service's."""
        self._guarded.grant(USER, list(map(self._here, rights)))
        self._given.update(rights)

    def withdraw(self, *rights: Right) -> None:
        """Take rights back."""
        self._guarded.withdraw(USER, list(map(self._here, rights)))
        self._given.difference_update(rights)

    def close(self) -> None:
        """Take all of them back."""
        self.withdraw(*self._given)

    def _here(self, right: Right) -> Right:
        operation, resource, name = right
        return operation, resource, self._names.get(name, name)


@contextmanager
def denied(
    guarded: Guarded, rights: set[Right], **more: object
) -> Iterator[tuple[Service, Rights]]:
    """A service of a user with these rights alone, not started yet."""
    service = Service(guarded, guarded.way("PLAIN", user=USER), **more)  # type: ignore[arg-type]
    given = Rights(guarded, service)
    given.grant(*rights)
    try:
        yield service, given
    finally:
        given.close()


NO_READ = "the topic 'orders-{}' may not be read: the right to describe and read it is missing"
NO_FETCH = "TopicAuthorizationFailedError: orders-{}: a right on the topic is missing (READ"
NO_GROUP = "GroupAuthorizationFailedError: group-{}: the right READ on the group is missing"
REFUSED_MEMBER = (
    "group 'group-{}' refuses this member: [Error 30] GROUP_AUTHORIZATION_FAILED: the right READ on"
)
NO_RIGHT = (
    "TopicAuthorizationFailedError: results-{}: a right on the topic is missing (READ, or WRITE for"
)
NO_LETTERS = "the dead-letter topic 'letters-{}' does not exist, or the right to see it is missing"
NO_WRITE = "nothing can be written to 'letters-{}' for "
NO_IDEMPOTENCE = "ClusterAuthorizationFailedError: the right WRITE on a topic is missing, or IDEMPOTENT_WRITE on the"
LACKS_CREATE = "CREATE on it is missing, or on the cluster"
NO_PRODUCE = (
    "TopicAuthorizationFailedError: letters-{}: a right on the topic is missing (READ, or WRITE for"
)


@pytest.mark.parametrize(
    ("missing", "instead", "words"),
    [
        pytest.param(READ_ORDERS, (), (NO_READ,), id="topic"),
        pytest.param(READ_ORDERS, (SEE_ORDERS,), (NO_FETCH,), id="topic-read"),
        pytest.param(JOIN, (), (NO_GROUP,), id="group"),
        pytest.param(JOIN, (SEE_GROUP,), (REFUSED_MEMBER,), id="group-read"),
        pytest.param(WRITE_LETTERS, (), (NO_LETTERS, NO_WRITE, NO_IDEMPOTENCE), id="letters"),
        pytest.param(
            WRITE_LETTERS, (SEE_LETTERS,), (NO_WRITE, NO_IDEMPOTENCE), id="letters-idempotent"
        ),
        pytest.param(
            WRITE_LETTERS, (SEE_LETTERS, IDEMPOTENT), (NO_WRITE, NO_PRODUCE), id="letters-write"
        ),
    ],
)
async def test_a_right_that_is_missing_is_named_and_may_be_granted_later(
    guarded: Guarded, missing: Right, instead: tuple[Right, ...], words: tuple[str, ...]
) -> None:
    """Rows H-1, J8 of the faults."""
    with denied(guarded, NEEDED - {missing} | set(instead)) as (service, rights):
        await service.send(b"1", b"bad 2", b"3")
        async with service.app:
            await service.until_named(*(word.format(service.topic[-8:]) for word in words))
            # Nothing that needs a dead letter is passed over.
            assert await service.committed() in (None, 1)
            rights.grant(missing)
            await service.until_committed(3)
            assert service.handled == [b"1", b"bad 2", b"3"]
            assert await service.dead_letters() == [b"bad 2"]
            await service.until_ready()


@pytest.mark.parametrize(
    ("missing", "words", "repeats"),
    [
        # Its partition is taken away.
        pytest.param(READ_ORDERS, (NO_READ,), True, id="topic"),
        pytest.param(JOIN, (REFUSED_MEMBER,), False, id="group"),
        pytest.param(WRITE_LETTERS, (NO_WRITE, NO_PRODUCE), False, id="letters"),
    ],
)
async def test_a_right_that_is_withdrawn_while_it_runs_stops_nothing_for_good(
    guarded: Guarded, missing: Right, words: tuple[str, ...], repeats: bool
) -> None:
    """Row J8 of the faults."""
    with denied(guarded, NEEDED) as (service, rights):
        async with service.app:
            await service.send(b"1", b"bad 2", b"3")
            await service.until_committed(3)
            rights.withdraw(missing)
            await service.send(b"4", b"bad 5", b"6")
            await service.until_named(*(word.format(service.topic[-8:]) for word in words))
            assert (await service.committed() or 0) < 6
            rights.grant(missing)
            await service.until_committed(6)
            await service.until_ready()
            assert set(service.handled) == {b"1", b"bad 2", b"3", b"4", b"bad 5", b"6"}
            assert set(await service.dead_letters()) == {b"bad 2", b"bad 5"}
            if not repeats:
                assert set(Counter(service.handled).values()) == {1}
                assert (service.assignments, len(await service.dead_letters())) == (1, 2)


async def test_a_member_that_was_put_out_while_it_had_no_right_joins_again(
    guarded: Guarded,
) -> None:
    """Row J8 of the faults."""
    with denied(guarded, NEEDED, channel={"session_timeout_ms": 1500}) as (service, rights):
        async with service.app:
            await service.send(b"1", b"bad 2", b"3")
            await service.until_committed(3)
            rights.withdraw(JOIN)
            await service.until_named(REFUSED_MEMBER.format(service.topic[-8:]))
            await service.until_put_out()
            await service.until_named(REFUSED_MEMBER.format(service.topic[-8:]))
            rights.grant(JOIN)
            await service.send(b"4", b"bad 5", b"6")
            await service.until_committed(6)
            await service.until_ready()
            # What it handles between the right and the news that it was put out is the next
            # assignment's too.
            assert Counter(service.handled) <= Counter(
                {b"1": 1, b"bad 2": 1, b"3": 1, b"4": 2, b"bad 5": 2, b"6": 2}
            )
            assert service.handled[-1] == b"6"


@pytest.mark.parametrize(
    ("missing", "instead", "words"),
    [
        pytest.param(
            TRANSACT,
            (),
            ("TransactionalIdAuthorizationFailed: group-{}-", "the right WRITE on"),
            id="id",
        ),
        pytest.param(
            WRITE_RESULTS,
            (SEE_RESULTS,),
            ("TopicAuthorizationFailedError", "results-{}"),
            id="results",
        ),
        pytest.param(
            WRITE_RESULTS, (), ("TopicAuthorizationFailedError", "results-{}"), id="results-unseen"
        ),
    ],
)
async def test_a_right_that_a_transaction_lacks_is_named_and_what_it_writes_is_written_once(
    guarded: Guarded, missing: Right, instead: tuple[Right, ...], words: tuple[str, ...]
) -> None:
    """Row J8 of the faults."""
    needed = NEEDED_BY_TRANSACTIONS - {missing} | set(instead)
    with denied(guarded, needed, transactional=True) as (service, rights):
        await service.send(b"1", b"2", b"3")
        async with service.app:
            await service.until_named(*(word.format(service.topic[-8:]) for word in words))
            assert await service.committed() is None
            rights.grant(missing)
            await service.until_committed(3)
            assert await service.written() == [b"1", b"2", b"3"]
            await service.until_ready()


NO_CREATE = "was not created: [Error 29] TopicAuthorizationFailedError: Authorization failed.: the right CREATE on it"


async def test_without_the_right_to_create_it_a_missing_topic_of_letters_is_named(
    guarded: Guarded,
) -> None:
    """Row J8 of the faults."""
    orders, results = guarded.create_topics("orders", "results")
    letters = f"letters{orders[-9:]}"
    with denied(guarded, NEEDED, topics=[orders, letters, results]) as (service, rights):
        await service.send(b"1", b"bad 2", b"3")
        async with service.app:
            await service.until_named(
                f"the dead-letter topic '{letters}' does not exist", NO_CREATE
            )
            assert await service.committed() in (None, 1)
            rights.grant(("CREATE", "TOPIC", "letters"))
            await service.until_committed(3)
            assert service.handled == [b"1", b"bad 2", b"3"]
            assert await service.dead_letters() == [b"bad 2"]
            await service.until_ready()


@pytest.mark.parametrize(
    ("operation", "kind", "words"),
    [
        (
            "READ",
            "GROUP",
            "GroupAuthorizationFailedError: kafka-delayed-retry-topic-group-{}: the right READ on the",
        ),
        (
            "READ",
            "TOPIC",
            "TopicAuthorizationFailedError: retries-{}_100: a right on the topic is missing (READ",
        ),
        ("CREATE", "TOPIC", NO_CREATE),
    ],
)
async def test_a_right_that_delayed_retries_lack_is_named_and_may_be_granted_later(
    guarded: Guarded, operation: str, kind: str, words: str
) -> None:
    """Row J8 of the faults."""
    topics = guarded.create_topics("orders", "letters", "results")
    end = topics[0][-8:]
    retries = f"retries-{end}_100"
    of_retries = {(one, "TOPIC", retries) for one in ("READ", "WRITE", "CREATE")}
    of_retries.add(("READ", "GROUP", f"kafka-delayed-retry-topic-group-{end}"))
    (missing,) = (right for right in of_retries if right[:2] == (operation, kind))
    channel = {
        "failure_strategy": "delayed-retry-topic",
        "delayed_retry": {"topics": [retries], "max_retries": 1},
    }
    with denied(guarded, NEEDED | of_retries - {missing}, topics=topics, channel=channel) as (
        service,
        rights,
    ):
        await service.send(b"1", b"bad 2", b"3")
        async with service.app:
            await service.until_named(words.format(end))
            assert await service.dead_letters() == []
            rights.grant(missing)
            await service.until_dead_letters(b"bad 2")
            await service.until_committed(3)
            await service.until_ready()
            assert Counter(service.handled) == Counter({b"1": 1, b"bad 2": 2, b"3": 1})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({IDEMPOTENT}, NO_RIGHT, id="unseen"),
        pytest.param({SEE_RESULTS, IDEMPOTENT}, NO_RIGHT, id="seen"),
    ],
)
async def test_a_right_to_write_that_is_missing_is_named_before_anything_is_sent(
    guarded: Guarded, given: set[Right], words: str
) -> None:
    with denied(guarded, given) as (service, rights):
        kafka = guarded.way("PLAIN", user=USER)
        outgoing = {"results": {"topic": service.results}}
        app = App({"kafka": kafka, "outgoing": outgoing, "http": {"enabled": False}})
        emitter = app.emitter("results")
        async with app:
            await until(
                lambda: words.format(service.topic[-8:]) in str(app.health().ready.to_json()),
                "named",
                5,
            )
            assert app.health().ready.status == "DOWN"
            rights.grant(WRITE_RESULTS)
            await until(lambda: app.health().ready.status == "UP", "it is ready")
            await emitter.send(b"1")
            assert await service.written() == [b"1"]


async def test_a_right_to_write_that_is_back_makes_a_channel_ready_that_sends_nothing(
    guarded: Guarded,
) -> None:
    with denied(guarded, {SEE_RESULTS, WRITE_RESULTS}) as (service, rights):
        kafka = {**guarded.way("PLAIN", user=USER), "enable_idempotence": False}
        outgoing = {"results": {"topic": service.results, "send_timeout": "2s"}}
        app = App({"kafka": kafka, "outgoing": outgoing, "http": {"enabled": False}})
        emitter = app.emitter("results")
        async with app:
            await emitter.send(b"1")
            rights.withdraw(WRITE_RESULTS)
            with pytest.raises(BrokerError):
                while True:
                    await emitter.send(b"2")
            await until(lambda: not app.facts().outgoing[0].in_flight, "nothing waits", 10)
            # Longer than two checks take.
            await asyncio.sleep(5)
            assert app.health().ready.status == "DOWN"
            rights.grant(WRITE_RESULTS)
            await until(lambda: app.health().ready.status == "UP", "it is ready")


async def test_a_right_that_is_withdrawn_from_one_topic_keeps_no_position_of_another_back(
    guarded: Guarded,
) -> None:
    read_results = ("READ", "TOPIC", "results")
    with denied(guarded, {READ_ORDERS, read_results, JOIN}) as (service, rights):
        orders, results = (TopicPartition(name, 0) for name in (service.topic, service.results))
        channel = {
            "topics": [service.topic, service.results],
            "group_id": service.group,
            "auto_offset_reset": "earliest",
            "value_deserializer": "bytes",
            "commit_interval": "0.1s",
            "max_uncommitted": 10,
        }
        kafka = guarded.way("PLAIN", user=USER)
        app = App({"kafka": kafka, "incoming": {"both": channel}, "http": {"enabled": False}})
        release = asyncio.Event()

        @app.incoming("both")
        async def handle(message: Message[bytes]) -> None:
            if message.topic == service.results:
                await release.wait()

        def committed() -> dict[TopicPartition, int | None]:
            return {one.partition: one.committed for one in app.facts().channels[0].partitions}

        async with AIOKafkaProducer(bootstrap_servers=guarded.open) as producer:
            await producer.send_and_wait(service.results, b"1")
            async with app:
                await until(
                    lambda: any(one.in_flight for one in app.facts().channels[0].partitions),
                    "it is handled",
                )
                rights.withdraw(read_results)
                rights.grant(SEE_RESULTS)
                release.set()
                await until(
                    lambda: f"commit of {results}" in str(app.health().ready.to_json()),
                    "it is named",
                )
                for _ in range(30):
                    await producer.send_and_wait(service.topic, b"2")
                await until(
                    lambda: committed()[orders] == 30, "the other topic is read and committed"
                )
                assert not committed()[results]
                assert app.health().live.is_up
                rights.grant(read_results)
                await until(lambda: committed()[results] == 1, "it is stored once it may be")
                await producer.send_and_wait(service.results, b"3")
                await until(lambda: committed()[results] == 2, "and read on")
                await until(lambda: app.health().ready.is_up, "it is ready")


async def test_a_declared_topic_is_created_once_the_right_create_is_granted(
    guarded: Guarded,
) -> None:
    topic = f"made-{uuid4().hex[:8]}"
    kafka = {**guarded.way("PLAIN", user=USER), **QUICKLY}
    channel = {
        "topic": topic,
        "group_id": topic,
        "failure_strategy": "dead-letter-queue",
        "dead_letter_queue": {"topic": f"{topic}-letters"},
    }
    app = App(
        {
            "kafka": kafka,
            "incoming": {"orders": channel},
            "topics": {topic: {"create": True, "partitions": 3}},
            "http": {"enabled": False},
        }
    )

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None: ...

    app.configure()
    create = ("CREATE", "TOPIC", topic)
    needed = [("READ", "TOPIC", topic), ("WRITE", "TOPIC", topic), ("READ", "GROUP", topic)]
    guarded.grant(USER, needed)
    try:
        found = await asyncio.to_thread(connect_report, app)
        assert (len(found.problems), found.created) == (2, [])
        assert all(LACKS_CREATE in problem for problem in found.problems)
        async with app:
            await until(lambda: LACKS_CREATE in reasons(app), "readiness names the right", 20.0)
            assert app.health().live.is_up
            guarded.grant(USER, [create])
            found = await asyncio.to_thread(connect_report, app)
            # The application may have created them by now.
            assert found.problems == []
            await until(lambda: len(app.channel("orders").assignment) == 3, "it reads", 30.0)
            await until(lambda: app.health().ready.is_up, "it is ready", 20.0)
        found = await asyncio.to_thread(connect_report, app)
        assert (found.problems, found.created) == ([], [])
    finally:
        guarded.withdraw(USER, [*needed, create])


def reasons(app: App) -> str:
    """Why it is not ready."""
    return " ".join(str(check.data.get("reason", "")) for check in app.health().ready.checks)
