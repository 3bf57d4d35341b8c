"""How long a client waits for a node that does not answer, when it connects to one again, and when
its session ends.

aiokafka waits ``request_timeout_ms`` (40 s) for everything, which is about as long as a session: a
connection that is half open, or a node that hangs, is noticed when the group has given the member
up already. And a node that refuses connections is asked again every 0.1 s, by each of its tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import nullcontext
from math import inf
from typing import Any

import aiokafka
from aiokafka.client import ConnectionGroup
from aiokafka.conn import CloseReason
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.metadata import MetadataRequest

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.aiokafka.fetched.session import FetchSession
from reactive_kafka.broker.aiokafka.pacing import Lookups

LOOK_S = 0.5
"""How often a connection is looked at that owes an answer."""

SLOW_S = 3.0
"""When a fetch that is not answered makes the client ask who leads its partitions by now."""

CONNECT_S = 10.0
"""How long it may take to connect to a node, or a third of the session if that is less."""

PROMPT_S = 5.0
"""How long a node may owe an answer that it has at hand, or a third of the session if that is
less.
"""

KEEPS_UP = (HeartbeatRequest.API_KEY, SyncGroupRequest.API_KEY)
# Error codes of an answer that keeps a session up: none, and that the group is rebalancing.
HEARD = (0, 27)
# Keys of the requests that are answered when all members are there.
JOINING = (11, 14)


class Reconnecting:
    """Put around aiokafka's way to connect to nodes: to each by itself, and to one that refuses
    with growing pauses.
    """

    def __init__(self, client: Any, longest_s: float = 5.0) -> None:
        self._client = client
        self._backoff = Backoff(0.1, longest_s)
        self._refused: dict[tuple[str, int], _Refused] = {}
        self._locks: dict[Any, asyncio.Lock] = {}
        self._connect = client._get_conn
        client._get_conn = self._connection
        Lookups(client)
        # One for all nodes: who connects to one that hangs held up all.
        client._get_conn_lock_value = nullcontext()

    async def _connection(
        self,
        node_id: Any,
        *,
        group: ConnectionGroup = ConnectionGroup.DEFAULT,
        no_hint: bool = False,
    ) -> Any:
        """A connection to a node, as the client's own method; None also while it is too early to
        try again.
        """
        known = self._client._conns.get((node_id, group))
        if known is not None and known.connected():
            return known
        async with self._locks.setdefault((node_id, group), asyncio.Lock()):
            known = self._client._conns.get((node_id, group))
            if known is not None and known.connected():
                return known
            broker = self._client.cluster.broker_metadata(node_id)
            # A node that has moved is another one.
            at = ("", 0) if broker is None else (broker.host, broker.port)
            refused = self._refused.get(at)
            if refused is not None and time.monotonic() < refused.until:
                return None
            made = await self._connect(node_id, group=group, no_hint=no_hint)
            if made is not None:
                self._refused.pop(at, None)
                self._made(made)
            elif broker is not None:
                self._refused.setdefault(at, _Refused(self._backoff)).again()
            return made

    def _made(self, connection: Any) -> None:
        """There is a new connection."""


class Patience(Reconnecting):
    """The deadlines of a consumer's connections, which follow from its session."""

    def __init__(
        self, client: Any, *, session_s: float, fetch_wait_s: float, follows_leaders: bool
    ) -> None:
        super().__init__(client, min(5.0, session_s / 6))
        self._session_s = session_s
        # When the last request was sent that the group answered.
        self._heard_at = time.monotonic()
        self._fetch_wait_s = fetch_wait_s
        self._slow_s = fetch_wait_s + SLOW_S
        third_s = session_s / 3
        # A node answers the requests of a connection one after the other: behind a fetch each waits
        # for that.
        prompt_s = min(third_s, PROMPT_S) + fetch_wait_s
        self._silence_s = {
            HeartbeatRequest.API_KEY: third_s,
            FindCoordinatorRequest.API_KEY: prompt_s,
            MetadataRequest.API_KEY: prompt_s,
            FetchRequest.API_KEY: max(third_s, self._slow_s),
            JoinGroupRequest.API_KEY: inf,
            SyncGroupRequest.API_KEY: inf,
        }
        # Else followers in the same rack are read, too.
        self._follows_leaders = follows_leaders
        self._request_timeout_s = client._request_timeout_ms / 1000
        # To connect.
        client._request_timeout_ms = 1000 * min(self._request_timeout_s, third_s, CONNECT_S)

    @property
    def session_ends_at(self) -> float:
        """When the group may give this member up, by the monotonic clock, if it is in one."""
        return self._heard_at + self._session_s

    def _made(self, connection: Any) -> None:
        send = connection.send
        connection._request_timeout = self._request_timeout_s
        session = FetchSession()

        def sends(request: Any, expect_response: bool = True) -> Awaitable[Any]:
            if request.API_KEY == FetchRequest.API_KEY:
                request.session = session
            answer: Awaitable[Any] = send(request, expect_response=expect_response)
            if request.API_KEY not in self._silence_s:
                return answer
            return self._answer(connection, request, answer)

        connection.send = sends

    async def _answer(self, connection: Any, request: Any, answer: Awaitable[Any]) -> Any:
        sent_at = time.monotonic()
        silence_s = self._silence_s[request.API_KEY]
        waits_s = 0.0
        follows_after_s = inf
        if request.API_KEY == FetchRequest.API_KEY:
            waits_s = self._fetch_wait_s
            follows_after_s = self._slow_s if self._follows_leaders else inf
        watch = _Watch(self._client, connection, request, waits_s, silence_s, follows_after_s)
        if (repeated := getattr(request, "repeated", None)) is not None:
            repeated.sent_again = watch.begin
        try:
            response = await answer
        finally:
            watch.cancel()
        # The session begins anew when the group gets a request, which is later than it was sent.
        if request.API_KEY in KEEPS_UP and response.error_code in HEARD:
            self._heard_at = sent_at
        return response


class _Refused:
    """A node that has refused a connection, and when it is asked again."""

    def __init__(self, backoff: Backoff) -> None:
        self._waits = Waits(backoff)
        self.until = 0.0

    def again(self) -> None:
        self.until = time.monotonic() + self._waits.next_s()


class _Watch:
    """Looks at a connection until a request is answered, and closes it when nothing comes any more.

    Bytes that arrive count, so a slow connection is not taken for a dead one. A fetch is given up
    also when its partitions are led by another node by now.
    """

    __slots__ = (
        "_began",
        "_client",
        "_connection",
        "_follows_after_s",
        "_look_at",
        "_look_s",
        "_progress",
        "_request",
        "_silence_s",
        "_since",
        "_timer",
        "_waits_s",
    )

    def __init__(
        self,
        client: Any,
        connection: Any,
        request: Any,
        waits_s: float,
        silence_s: float,
        follows_after_s: float,
    ) -> None:
        self._client = client
        self._connection = connection
        self._request = request
        self._waits_s = waits_s
        self._silence_s = silence_s
        self._follows_after_s = follows_after_s
        self._timer: asyncio.TimerHandle | None = None
        self._look_s = min(LOOK_S, silence_s / 4)
        self._look_at = -inf
        self.begin()

    def begin(self) -> None:
        """It is sent, or sent again."""
        self._began = self._since = time.monotonic()
        self._progress = self._stands()
        # A node with nothing to tell answers by then. Sent again, a timer stands for several: each
        # costs as its answer.
        if self._look_at < self._began + self._waits_s + self._look_s:
            self.cancel()
            self._again(self._waits_s + (0.0 if self._timer is None else SLOW_S / 2))

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self, more_s: float = 0.0) -> None:
        self._look_at = time.monotonic() + more_s + self._look_s
        self._timer = asyncio.get_running_loop().call_later(more_s + self._look_s, self._look)

    def _stands(self) -> tuple[int, int]:
        """What changes with each answer, and with each byte of one."""
        return self._connection._requests[0][0], self._connection._protocol.begun

    def _look(self) -> None:
        connection = self._connection
        now = time.monotonic()
        if connection._reader is None or not connection._requests:
            # Closed, or answered in this very moment.
            return
        progress = self._stands()
        if progress != self._progress or any(
            one[1].API_KEY in JOINING for one in connection._requests if one[1]
        ):
            self._progress = progress
            self._since = now
        is_slow = now - self._began >= self._follows_after_s
        if now - self._since >= self._silence_s or (is_slow and self._has_moved()):
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            return
        if is_slow:
            self._client.force_metadata_update()
        self._again()

    def _has_moved(self) -> bool:
        cluster = self._client.cluster
        node = (self._connection.host, self._connection.port)
        for topic, partitions in self._request.topics:
            for partition, *_ in partitions:
                leader = cluster.leader_for_partition(aiokafka.TopicPartition(topic, partition))
                broker = None if leader in (None, -1) else cluster.broker_metadata(leader)
                if broker is not None and (broker.host, broker.port) != node:
                    return True
        return False
