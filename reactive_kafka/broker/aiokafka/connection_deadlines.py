"""How long a consumer waits for a node that does not answer.

``request_timeout_ms`` (40 s) is about as long as a session: a client that waits so long for
everything notices a half-open connection, or a node that hangs, when the group has removed the
member already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from math import inf
from typing import Any

from reactive_kafka.broker.aiokafka.connections.broker_connection import (
    BrokerConnection,
    ClosedBecause,
)
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch
from reactive_kafka.broker.wire.definitions import (
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)

LOOK_S = 0.5
"""How often a connection with an unanswered request is checked."""

SLOW_S = 3.0
"""After this, plus the fetch's own wait, the client asks who leads the partitions of a fetch."""

CONNECT_S = 10.0
"""How long connecting to a node may take, or a third of the session if that is less."""

PROMPT_S = 5.0
"""How long a node may take for an answer that it has at hand, or a third of the session if that is
less.
"""

COMMIT_S = 6.0
"""How long a coordinator may take for a commit, at least: it waits 5 s for its followers."""

JOINING_KEYS = (JOIN_GROUP.key, SYNC_GROUP.key)
"""JoinGroup and SyncGroup are answered when all members are there, which may take long."""
CONNECTION_SLACK_S = 10.0
"""How much longer than the rebalance timeout a connection waits for them. The member itself gives
up sooner.
"""


class ConnectionDeadlines:
    """The deadlines of a consumer's connections, which follow from its session.

    Args:
        request_timeout_s: Its ``request_timeout_ms``, in seconds.
        session_s: Its ``session_timeout_ms``, in seconds.
        rebalance_s: Its ``rebalance_timeout_ms``, in seconds.
        fetch_wait_s: Its ``fetch_max_wait_ms``, in seconds.
        follows_leaders: False: followers in its rack are read, too.

    Attributes:
        connect_timeout_s: How long connecting to a node may take, and each answer until then.
        longest_pause_s: The longest pause after refused connections.
    """

    def __init__(
        self,
        *,
        request_timeout_s: float,
        session_s: float,
        rebalance_s: float,
        fetch_wait_s: float,
        follows_leaders: bool,
    ) -> None:
        self._fetch_wait_s = fetch_wait_s
        self._slow_s = fetch_wait_s + SLOW_S
        third_s = session_s / 3
        # A node answers the requests of a connection one after the other, so each may have to wait
        # for a fetch before it.
        prompt_s = min(third_s, PROMPT_S) + fetch_wait_s
        self._silence_s = {
            HEARTBEAT.key: third_s,
            # A static assignment sends no heartbeats.
            OFFSET_COMMIT.key: max(third_s, COMMIT_S),
            OFFSET_FETCH.key: max(third_s, COMMIT_S),
            CONSUMER_GROUP_HEARTBEAT.key: third_s,
            FIND_COORDINATOR.key: prompt_s,
            METADATA.key: prompt_s,
            FETCH.key: max(third_s, self._slow_s),
            JOIN_GROUP.key: inf,
            SYNC_GROUP.key: inf,
        }
        self._follows_leaders = follows_leaders
        self._joining_timeout_s = max(request_timeout_s, rebalance_s + CONNECTION_SLACK_S)
        self.connect_timeout_s = min(request_timeout_s, third_s, CONNECT_S)
        self.longest_pause_s = min(5.0, session_s / 6)

    def send(
        self, client: KafkaClient, connection: BrokerConnection, request: Any
    ) -> Awaitable[Any]:
        """Send a request, and close the connection if it stays silent for too long."""
        if request.API_KEY in JOINING_KEYS:
            # On a connection of their own.
            connection.answer_timeout_s = self._joining_timeout_s
        answer = connection.send(request)
        if request.API_KEY not in self._silence_s:
            return answer
        return self._answer(client, connection, request, connection.last_number, answer)

    async def _answer(
        self,
        client: KafkaClient,
        connection: BrokerConnection,
        request: Any,
        number: int,
        answer: Awaitable[Any],
    ) -> Any:
        """Await an answer, and close the connection if it stays silent for too long.

        Cancellation: the watch goes on until the node has answered. Otherwise callers with a
        shorter deadline would ask again and again on a connection that is dead.
        """
        silence_s = self._silence_s[request.API_KEY]
        waits_s = 0.0
        follows_after_s = inf
        if isinstance(request, NodeFetch):
            waits_s = self._fetch_wait_s
            follows_after_s = self._slow_s if self._follows_leaders else inf
        watch = _AnswerWatch(
            client, connection, request, number, waits_s, silence_s, follows_after_s
        )
        if isinstance(request, NodeFetch) and request.repeat_wait_ms is not None:
            request.sent_again = watch.sent_again
        try:
            response = await answer
        except asyncio.CancelledError:
            watch.outlive_caller()
            raise
        except BaseException:
            # The request has ended with an error: nothing is left to watch.
            watch.cancel()
            raise
        watch.cancel()
        return response


class _AnswerWatch:
    """Checks a connection until a request is answered, and closes it after a long silence.

    Bytes that arrive count, so a slow connection is not taken for a dead one. A fetch is also given
    up if another node leads one of its partitions by now.

    Args:
        client: Of the connection.
        connection: The request was sent on it.
        request: Is not answered yet.
        number: Of the request; a new one each time that it is sent. A node answers the requests of
            a connection in their order.
        waits_s: How long the node may wait by itself before it answers.
        silence_s: The longest silence.
        follows_after_s: When to look for moved leaders.
    """

    __slots__ = (
        "_began",
        "_client",
        "_connection",
        "_follows_after_s",
        "_look_at",
        "_look_s",
        "_number",
        "_outlives",
        "_progress",
        "_request",
        "_silence_s",
        "_since",
        "_timer",
        "_waits_s",
    )

    def __init__(
        self,
        client: KafkaClient,
        connection: BrokerConnection,
        request: Any,
        number: int,
        waits_s: float,
        silence_s: float,
        follows_after_s: float,
    ) -> None:
        self._client = client
        self._connection = connection
        self._request = request
        self._number = number
        # The caller has given up.
        self._outlives = False
        self._waits_s = waits_s
        self._silence_s = silence_s
        self._follows_after_s = follows_after_s
        self._timer: asyncio.TimerHandle | None = None
        self._look_s = min(LOOK_S, silence_s / 4)
        self._look_at = -inf
        self.begin()

    def sent_again(self) -> None:
        """Start the watch once more: the connection has just sent the fetch again."""
        self._number = self._connection.last_number
        self.begin()

    def begin(self) -> None:
        """Start the watch: the request was sent."""
        self._began = time.monotonic()
        self._since = self._began
        self._progress = self._connection.progress
        # A node without new records answers when its wait is over. A fetch that is sent again needs
        # no timer each time: one that is late enough serves several, as each costs as much as an
        # answer.
        if self._look_at < self._began + self._waits_s + self._look_s:
            self.cancel()
            self._look_later(self._waits_s + (0.0 if self._timer is None else SLOW_S / 2))

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def outlive_caller(self) -> None:
        """Go on until the request is answered, although the caller has given up."""
        self._outlives = True

    def _look_later(self, more_s: float = 0.0) -> None:
        self._look_at = time.monotonic() + more_s + self._look_s
        self._timer = asyncio.get_running_loop().call_later(more_s + self._look_s, self._look)

    def _look(self) -> None:
        connection = self._connection
        now = time.monotonic()
        if not connection.is_open or not connection.unanswered:
            # It was closed, or answered at this very moment.
            return
        if self._outlives and connection.unanswered[0].number > self._number:
            return
        progress = connection.progress
        is_joining = any(sent.request.API_KEY in JOINING_KEYS for sent in connection.unanswered)
        if progress != self._progress or is_joining:
            self._progress = progress
            self._since = now
        is_slow = now - self._began >= self._follows_after_s
        if now - self._since >= self._silence_s or (is_slow and self._has_moved()):
            connection.close(ClosedBecause.TIMED_OUT)
            return
        if is_slow:
            self._client.force_metadata_update()
        self._look_later()

    def _has_moved(self) -> bool:
        """True if another node leads a partition of the fetch, as far as the client knows."""
        cluster = self._client.cluster
        node = (self._connection.host, self._connection.port)
        for partition in self._request.asked:
            leader = cluster.leader_for_partition(partition)
            broker = None if leader in (None, -1) else cluster.broker_metadata(leader)
            if broker is not None and (broker.host, broker.port) != node:
                return True
        return False
