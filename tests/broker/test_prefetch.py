"""When the next fetch is sent though some of the last one is left, and what the client waits for
afterwards.
"""

from __future__ import annotations

from asyncio import Future
from math import inf
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import FetchError, FetchResult
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetch_client import FetchClient
from reactive_kafka.broker.aiokafka.fetched import prefetch
from reactive_kafka.broker.aiokafka.fetched.record_poller import has_expected_internals
from tests.broker.test_repeated_request import Node, fetch

MOST_BYTES, BACKOFF_S = 4_000, 0.1


def held(left_bytes: int | None, backoff_s: float = BACKOFF_S) -> Any:
    """A piece of which so much is left; None: nobody has begun to read it."""
    reader = {} if left_bytes is None else {"reader": SimpleNamespace(left_bytes=left_bytes)}
    return SimpleNamespace(_backoff=backoff_s, _created=-1e6, **reader)


def fetcher_with(*lefts: int | None, in_flight: tuple[int, ...] = ()) -> Any:
    """A client's fetcher; each piece is of a node of its own."""
    return SimpleNamespace(
        _subscriptions=SimpleNamespace(subscription=None),
        _records={number: held(left) for number, left in enumerate(lefts)},
        _fetch_max_bytes=MOST_BYTES,
        _prefetch_backoff=BACKOFF_S,
        _in_flight=set(in_flight),
        _select_read_replica=lambda partition: partition,
        _wait_consume_future=None,
        _notify=lambda future: future is not None and future.set_result(None),
    )


@pytest.mark.parametrize(
    ("lefts", "partitions", "low"),
    [
        ((400, 600), 4, True),
        # More than a quarter of an answer.
        ((400, 601), 4, False),
        # Most partitions are held.
        ((400, 600), 3, False),
        ((400, None), 9, False),
        ((), 9, False),
    ],
)
def test_it_is_time_where_little_is_left_and_most_partitions_have_nothing(
    lefts: tuple[int | None, ...], partitions: int, low: bool
) -> None:
    assert prefetch.runs_low(fetcher_with(*lefts), partitions) is low


@given(st.sets(st.integers(0, 3)))
def test_only_nodes_that_are_not_asked_now_are_hurried_and_what_is_held_of_others_waits(
    in_flight: set[int],
) -> None:
    fetcher = fetcher_with(1, 1, 1, in_flight=tuple(in_flight))
    nodes = prefetch.fetch_others_now(fetcher)
    assert nodes == {0, 1, 2} - in_flight
    assert {node for node, one in fetcher._records.items() if not one._backoff} == nodes


async def test_the_client_is_woken_to_look_for_it() -> None:
    fetcher = fetcher_with(1)
    woken = fetcher._wait_consume_future = Future[None]()
    prefetch.fetch_others_now(fetcher)
    assert woken.done()


async def test_a_hurried_fetch_waits_for_nothing_is_sent_once_and_what_is_held_counts_again() -> (
    None
):
    node, fetcher = Node(), fetcher_with(1)
    fetch_client = FetchClient(node, lambda request, answer: None, 0.5, fetcher)
    for _ in range(2):
        await fetch_client.send(0, fetch())
    fetch_client.hurried |= prefetch.fetch_others_now(fetcher)
    assert fetcher._records[0]._backoff == 0
    # Another node.
    await fetch_client.send(7, fetch())
    await fetch_client.send(0, fetch())
    assert fetcher._records[0]._backoff == BACKOFF_S
    for _ in range(3):
        await fetch_client.send(0, fetch())
    waits = [(request._max_wait_ms, request._min_bytes) for request in node.sent]
    assert waits == [(500, 1), (500, 1), (500, 1), (0, 0), (500, 1), (500, 1), (500, 1)]
    assert not hasattr(node.sent[3], "repeated"), "it would be sent again without a pause"


async def test_what_is_held_counts_again_also_where_the_hurried_fetch_fails() -> None:
    class Gone(Node):
        async def send(self, node_id: int, request: Any, **given: Any) -> Any:
            raise ConnectionResetError

    fetcher = fetcher_with(1)
    fetch_client = FetchClient(Gone(), lambda request, answer: None, 0.5, fetcher)
    fetch_client.hurried |= prefetch.fetch_others_now(fetcher)
    with pytest.raises(ConnectionResetError):
        await fetch_client.send(0, fetch())
    assert fetcher._records[0]._backoff == BACKOFF_S


def test_a_fetch_without_what_is_held_of_its_node_waits_for_a_part_of_the_time_that_it_was_held() -> (
    None
):
    fetcher = fetcher_with(1, 1, 1)
    for partition, created in enumerate((10.0, 12.0, 19.0)):
        fetcher._records[partition]._created = created
    fetcher._select_read_replica = lambda partition: partition // 2
    # The one that came last ends first, perhaps.
    assert prefetch.most_wait_ms(fetcher, 0, 12.8) == pytest.approx(100)
    assert prefetch.most_wait_ms(fetcher, 1, 19.0) == 0
    assert prefetch.most_wait_ms(fetcher, 2, 19.0) == inf


async def test_such_a_fetch_is_sent_with_that_wait_and_does_not_stand() -> None:
    node, fetcher = Node(), fetcher_with(1)
    fetch_client = FetchClient(node, lambda request, answer: None, 0.5, fetcher)
    for held_s in (0.4, 0.4, 0.4, 60, 60, 60):
        fetcher._records[0]._created = monotonic() - held_s
        await fetch_client.send(0, fetch())
    waits = [request._max_wait_ms for request in node.sent]
    assert all(50 <= wait_ms < 150 for wait_ms in waits[:3])
    assert waits[3:] == [500, 500, 500]
    assert [hasattr(request, "repeated") for request in node.sent] == [False] * 3 + [True] * 3


def test_what_the_client_has_no_more_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AttributeError would end the client's task for fetches: alive, and doing nothing."""
    names = (
        "_records",
        "_wait_consume_future",
        "_notify",
        "_in_flight",
        "_select_read_replica",
        "_prefetch_backoff",
        "_fetch_max_bytes",
        "_fetch_max_wait_ms",
        "_subscriptions",
        "_client_rack",
    )
    fetcher = SimpleNamespace(**dict.fromkeys(names))
    assert has_expected_internals(SimpleNamespace(_fetcher=fetcher))
    for name in names:
        without = SimpleNamespace(**{one: None for one in names if one != name})
        assert not has_expected_internals(SimpleNamespace(_fetcher=without))
    for kind in (FetchResult, FetchError):
        with monkeypatch.context() as patch:
            patch.setattr(kind, "__init__", lambda *_, **__: None)
            assert not has_expected_internals(SimpleNamespace(_fetcher=fetcher))
