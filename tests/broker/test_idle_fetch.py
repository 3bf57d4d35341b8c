"""Fetches that nothing answers to are sent again off the connection, for as long as the fetcher
would do the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.protocol.fetch import FetchRequest
from hypothesis import example, given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetch_client import FetchClient
from reactive_kafka.broker.aiokafka.fetched.frames import handle_answer
from reactive_kafka.broker.aiokafka.fetched.idle_fetch import LATE_S, IdleFetch, nothing_new
from reactive_kafka.broker.aiokafka.fetched.repeated_request import RepeatedRequest
from tests.broker.test_repeated_request import NOTHING, VERSIONS, answer, fetch

# Nodes.
ONE, OTHER = 1, 2
NUMBERS = range(4)


class Cluster(ClusterMetadata):  # type: ignore[misc]
    """Leaders as told; aiokafka's, but for where it has them from."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders = dict.fromkeys(NUMBERS, ONE)
        self._last_successful_refresh_ms = 1

    def leader_for_partition(self, partition: Any) -> int | None:
        return self.leaders[partition.partition]

    def moves(self, number: int, node: int) -> None:
        self.leaders[number] = node
        self._last_successful_refresh_ms += 1


class Ground:
    """aiokafka's fetcher without its task, with partitions 0 to 3 of one topic, of which it reads
    from 7 on.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.subscriptions = SubscriptionState()
        self.subscriptions.assign_from_user(
            [aiokafka.TopicPartition("orders", number) for number in NUMBERS]
        )
        self.fetcher: Any = Fetcher.__new__(Fetcher)
        self.fetcher.__dict__.update(
            _client=SimpleNamespace(cluster=self.cluster),
            _subscriptions=self.subscriptions,
            _records={},
            _in_flight=set(),
            _preferred_read_replica={},
            _client_rack=None,
            _max_partition_fetch_bytes=9,
            _fetch_max_wait_ms=500,
            _fetch_min_bytes=1,
            _fetch_max_bytes=99,
            _isolation_level=0,
            _fetcher_timeout=5,
        )
        for number in NUMBERS:
            self.state(number).seek(7)

    @property
    def assignment(self) -> Any:
        return self.subscriptions.subscription.assignment

    def state(self, number: int) -> Any:
        return self.assignment.state_value(aiokafka.TopicPartition("orders", number))

    def asks(self) -> frozenset[Any]:
        """What the fetcher would ask the node for now."""
        requests = dict(self.fetcher._get_actions_per_node(self.assignment)[0])
        topics = requests[ONE].topics if ONE in requests else []
        return frozenset((topic, *one) for topic, partitions in topics for one in partitions)

    def wants_metadata(self) -> bool:
        return bool(self.fetcher._get_actions_per_node(self.assignment)[3])


Change = Callable[[Ground, int], object]
CHANGES: dict[str, Change] = {
    "pause": lambda ground, number: ground.state(number).pause(),
    "resume": lambda ground, number: ground.state(number).resume(),
    "seek": lambda ground, number: ground.state(number).seek(9),
    "back": lambda ground, number: ground.state(number).seek(7),
    "reset": lambda ground, number: ground.state(number).await_reset(1),
    "away": lambda ground, number: ground.cluster.moves(number, OTHER),
    "no leader": lambda ground, number: ground.cluster.moves(number, -1),
    "no change": lambda ground, number: None,
    "here": lambda ground, number: ground.cluster.moves(number, ONE),
}
STEPS = st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from(NUMBERS)), max_size=6)


@given(before=STEPS, then=STEPS)
@example(before=[("pause", 0)], then=[("reset", 0)])
def test_what_stands_is_what_the_fetcher_would_ask_for(
    before: list[tuple[str, int]], then: list[tuple[str, int]]
) -> None:
    async def story() -> None:
        ground = Ground()
        for change, number in before:
            CHANGES[change](ground, number)
        asks = ground.asks()
        standing = IdleFetch(ground.fetcher, ONE, asks, since=0.0, until=10.0)
        for change, number in [*then, ("no change", 0)]:
            if asks and standing.may_repeat(1.0):
                assert ground.asks() == asks
                assert not ground.wants_metadata()
            CHANGES[change](ground, number)

    asyncio.run(story())


async def test_it_ends_with_its_time_the_assignment_more_partitions_and_a_rack() -> None:
    ground = Ground()
    standing = IdleFetch(ground.fetcher, ONE, ground.asks(), since=0.0, until=10.0)
    assert standing.may_repeat(9.9)
    assert not standing.may_repeat(10.0)
    assignment = ground.assignment
    assignment._topic_partitions |= {aiokafka.TopicPartition("orders", 9)}
    assert not standing.may_repeat(1.0)
    ground = Ground()
    standing = IdleFetch(ground.fetcher, ONE, ground.asks(), since=0.0, until=10.0)
    assignment, asks = ground.assignment, ground.asks()
    ground.subscriptions.assign_from_user([aiokafka.TopicPartition("orders", 0)])
    assert not assignment.active
    assert not standing.may_repeat(1.0)
    ground = Ground()
    ground.fetcher._client_rack = "a"
    assert not IdleFetch(ground.fetcher, ONE, asks, since=0.0, until=10.0).may_repeat(1.0)


async def test_a_partition_that_was_left_out_for_its_records_is_asked_for_next() -> None:
    ground = Ground()
    asks = frozenset(one for one in ground.asks() if one[1] != 3)
    assert not IdleFetch(ground.fetcher, ONE, asks, since=0.0, until=10.0).may_repeat(1.0)


class Connection:
    """What :func:`handle_answer` uses of aiokafka's: the requests that wait, and what is written."""

    _client_id = "me"

    def __init__(self, asked: Any, error: Exception | None = None) -> None:
        self.answer = asyncio.get_running_loop().create_future()
        self._requests = deque([(1, asked, self.answer)])
        self.written: list[bytes] = []
        self.error, self.closed = error, False
        self._writer = SimpleNamespace(write=self.write)
        self._number = 1

    def write(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.written.append(data)

    def _next_correlation_id(self) -> int:
        self._number += 1
        return self._number

    def close(self, reason: Any) -> None:
        self.closed = True

    def _handle_frame(self, frame: bytes) -> None:
        self._requests.popleft()
        self.answer.set_result(frame)


def framed(number: int, content: bytes) -> bytes:
    return number.to_bytes(4, "big") + content


async def test_it_is_sent_under_the_next_number_until_it_does_not_stand_any_more() -> None:
    stands, again = [500, 120, None], list[int]()
    repeated = RepeatedRequest(fetch(), nothing_new, lambda: stands.pop(0))
    repeated.sent_again = lambda: again.append(1)
    content, asked = answer(fetch(), NOTHING, NOTHING), repeated.request.prepare(VERSIONS)
    # So that it is known.
    repeated.decode_frame(memoryview(framed(0, content)))
    connection: Any = Connection(asked)
    # Of somebody else: the answers come in the order of the requests.
    connection._requests.append((7, None, None))
    handle_answer(connection, framed(1, content))
    assert [number for number, *_ in connection._requests] == [7, 2]
    connection._requests.popleft()
    handle_answer(connection, framed(2, content))
    assert [number for number, *_ in connection._requests] == [3]
    assert not connection.answer.done()
    assert len(again) == 2
    for number, written in enumerate(connection.written, 2):
        header = asked.build_request_header(correlation_id=number, client_id="me").encode()
        same = fetch()
        same._max_wait_ms = [500, 120][number - 2]
        wanted = header + same.prepare(VERSIONS).encode()
        assert written == len(wanted).to_bytes(4, "big") + wanted
    handle_answer(connection, framed(3, content))
    # Nothing new.
    assert connection.answer.result().topics == []
    assert not connection._requests
    assert not stands


@given(now=st.floats(0, 1e9), most_ms=st.integers(0, 60_000))
def test_answers_with_nothing_come_together_and_none_later_than_the_client_says(
    now: float, most_ms: int
) -> None:
    async def standing() -> IdleFetch:
        ground = Ground()
        ground.fetcher._fetch_max_wait_ms = most_ms
        return IdleFetch(ground.fetcher, ONE, ground.asks(), since=0.0, until=inf)

    wait_ms = asyncio.run(standing()).wait_ms(now)
    assert most_ms // 8 <= wait_ms <= most_ms
    if wait_ms > most_ms // 8:
        assert (int(now * 1000) + wait_ms) % most_ms == 0


async def test_an_answer_that_comes_late_ends_what_stands() -> None:
    ground = Ground()
    standing = IdleFetch(ground.fetcher, ONE, ground.asks(), since=0.0, until=inf)
    assert standing.may_repeat(1.0)
    assert standing.wait_ms(1.1) == 400
    assert standing.may_repeat(1.5)
    assert standing.may_repeat(1.5 + LATE_S)
    assert not standing.may_repeat(1.51 + LATE_S)


async def test_a_node_vouches_for_its_partitions_while_it_leads_them_and_answers() -> None:
    ground, fetch_client = Ground(), list[FetchClient]()

    class Client:
        cluster = ground.cluster

        async def send(self, node_id: int, request: FetchRequest, **_: Any) -> Any:
            if hasattr(request, "repeated"):
                request.repeated._repeat_wait_ms()
                assert fetch_client[0].all_idle_since() < inf
                assert fetch_client[0].keeps_known(["orders"])
                ground.cluster.moves(2, OTHER)
                assert fetch_client[0].all_idle_since() == inf
                assert not fetch_client[0].keeps_known(["orders"])
                ground.cluster.leaders[2], ground.cluster._last_successful_refresh_ms = ONE, 1
                assert fetch_client[0].all_idle_since() < inf
                fetch_client[0]._answered[ONE] -= 2
                assert fetch_client[0].all_idle_since() == inf
                seen.append(True)
            return SimpleNamespace(topics=[])

    seen: list[bool] = []
    fetch_client.append(FetchClient(Client(), lambda *_: None, 0.5, ground.fetcher, 10.0))
    ground.cluster.partitions_for_topic = lambda topic: set(NUMBERS)  # type: ignore[method-assign]
    for _ in range(2):
        asks = [(number, offset, most) for _, number, offset, most in ground.asks()]
        await fetch_client[0].send(ONE, FetchRequest(500, 1, 99, 0, [("orders", asks)]))
    assert seen


async def test_with_two_nodes_all_idle_since_the_last_of_them_does() -> None:
    ground = Ground()
    ground.cluster.moves(3, OTHER)
    fetch_client = FetchClient(
        SimpleNamespace(cluster=ground.cluster), lambda *_: None, 0.5, ground.fetcher, 10.0
    )
    now = asyncio.get_running_loop().time()
    of_one = ground.asks()
    of_other = frozenset({("orders", 3, 7, 9)})
    for node, asks, since in ((ONE, of_one, now - 2), (OTHER, of_other, now - 1)):
        assert fetch_client.all_idle_since() == inf
        fetch_client._answered[node] = now
        fetch_client._idle[node] = IdleFetch(ground.fetcher, node, asks, since=since, until=inf)
    assert fetch_client.all_idle_since() == now - 1
    ground.subscriptions.assign_from_user(
        [aiokafka.TopicPartition("orders", number) for number in NUMBERS]
    )
    assert fetch_client.all_idle_since() == inf


async def test_records_reach_who_waits() -> None:
    repeated = RepeatedRequest(fetch(), nothing_new, lambda: 500)
    nothing, asked = answer(fetch(), NOTHING, NOTHING), repeated.request.prepare(VERSIONS)
    repeated.decode_frame(memoryview(framed(0, nothing)))
    connection: Any = Connection(asked)
    handle_answer(connection, framed(1, nothing))
    assert not connection.answer.done()
    some = answer(fetch(), NOTHING, (0, 8, 8, 0, [], -1, b"x" * 70))
    handle_answer(connection, framed(2, some))
    ((_, partitions),) = connection.answer.result().topics
    assert [one[-1] for one in partitions] == [b"", b"x" * 70]


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), RuntimeError("uvloop: the handler is closed")]
)
async def test_a_connection_that_takes_it_no_more_is_closed(error: Exception) -> None:
    repeated = RepeatedRequest(fetch(), nothing_new, lambda: 500)
    content, asked = answer(fetch(), NOTHING, NOTHING), repeated.request.prepare(VERSIONS)
    repeated.decode_frame(memoryview(framed(0, content)))
    connection: Any = Connection(asked, error)
    handle_answer(connection, framed(1, content))
    assert connection.closed
    # close() tells whoever waits.
    assert [one[2] for one in connection._requests] == [connection.answer]


async def test_a_node_that_answers_is_known_to_while_a_fetch_stands_and_a_seek_ends_it() -> None:
    ground, sent = Ground(), list[Any]()
    offsets = [(number, 7, 9) for number in NUMBERS]

    class Client:
        cluster = ground.cluster

        async def send(self, node_id: int, request: FetchRequest, **_: Any) -> Any:
            sent.append(request)
            return SimpleNamespace(topics=[])

    fetch_client = FetchClient(Client(), lambda *_: None, 0.5, ground.fetcher, 10.0)
    for _ in range(2):
        await fetch_client.send(ONE, FetchRequest(500, 1, 99, 0, [("orders", offsets)]))
    fetch_client._answered.clear()
    assert sent[1].repeated._repeat_wait_ms() is not None
    assert fetch_client.was_answered(ONE)
    fetch_client.forget()
    assert sent[1].repeated._repeat_wait_ms() is None


async def test_all_stand_while_the_fetch_that_asks_for_all_is_on_its_way_again_and_no_longer() -> (
    None
):
    ground, seen, is_reassigned = Ground(), list[float](), False
    now = asyncio.get_running_loop().time()

    class Client:
        cluster = ground.cluster

        async def send(self, node_id: int, request: FetchRequest, **_: Any) -> Any:
            if hasattr(request, "repeated"):
                request.repeated._repeat_wait_ms()
            if is_reassigned:
                ground.subscriptions.assign_from_user([aiokafka.TopicPartition("orders", 0)])
                ground.state(0).seek(7)
            seen.append(fetch_client.all_idle_since())
            return SimpleNamespace(topics=[])

    fetch_client = FetchClient(Client(), lambda *_: None, 0.5, ground.fetcher, 10.0)

    async def fetched() -> float:
        """Since when all stand while the second of two fetches is on its way."""
        for _ in range(2):
            asks = [(number, offset, most) for _, number, offset, most in ground.asks()]
            await fetch_client.send(ONE, FetchRequest(500, 1, 99, 0, [("orders", asks)]))
        assert fetch_client.all_idle_since() == inf
        return seen[-1]

    assert now <= await fetched() < now + 5
    # It was not known yet that the answer is nothing.
    assert seen[0] == inf
    ground.state(2).pause()
    # Of that one nobody would hear.
    assert await fetched() == inf
    ground.state(2).resume()
    assert await fetched() < inf
    ground.cluster.moves(2, OTHER)
    assert await fetched() == inf
    ground.cluster.moves(2, ONE)
    is_reassigned = True
    assert await fetched() == inf
