"""What a Kafka client counts about itself, and how it pushes metrics to a broker.

Source: KIP-714.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

NO_ERROR = 0
NEW_INSTANCE = bytes(16)
"""The instance id with which a client asks first. The broker then draws one for it."""


class LatencyWindow(NamedTuple):
    """The durations that were noted since the last look."""

    average_s: float
    longest_s: float


class Latencies:
    """Durations of one kind of request.

    Attributes:
        total_s: The sum of all durations, since the start.
    """

    __slots__ = ("_count", "_longest_s", "_sum_s", "total_s")

    def __init__(self) -> None:
        self.total_s = 0.0
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._sum_s = 0.0
        self._longest_s = 0.0

    def note(self, duration_s: float) -> None:
        """Count a duration."""
        self.total_s += duration_s
        self._count += 1
        self._sum_s += duration_s
        self._longest_s = max(self._longest_s, duration_s)

    def take(self) -> LatencyWindow | None:
        """Return the durations since the last call; None: there were none."""
        if not self._count:
            return None
        window = LatencyWindow(self._sum_s / self._count, self._longest_s)
        self._begin()
        return window


@dataclass(slots=True)
class ClientCounts:
    """What one client of a consumer has counted."""

    # Connections to brokers that were made, without the first one, which asks for the others.
    connections: int = 0
    fetches: Latencies = field(default_factory=Latencies)
    commits: Latencies = field(default_factory=Latencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSubscription:
    """Which metrics a broker wants of a client, and how. The answer to GetTelemetrySubscriptions.

    After an error only ``error_code`` and ``throttle_s`` mean something.
    """

    error_code: int = NO_ERROR
    throttle_s: float = 0.0
    # The broker has drawn it, or it is the one that the client has sent.
    instance_id: bytes = NEW_INSTANCE
    subscription_id: int = 0
    push_interval_s: float = 0.0
    # The longest payload that the broker takes, after compression.
    most_bytes: int = 0
    # True: sums are pushed as what was added since the last push.
    is_delta: bool = False
    # The beginnings of the names of the metrics that are wanted. "" or "*" is all.
    prefixes: tuple[str, ...] = ()
    # Kafka's numbers of the compressions that the broker reads, the best first.
    compressions: tuple[int, ...] = ()


class PushAnswer(NamedTuple):
    """What a broker has said about pushed metrics."""

    error_code: int
    throttle_s: float


class MetricsReceiver(Protocol):
    """The broker that a client pushes its metrics to, by the client's own connections."""

    @property
    def counts(self) -> ClientCounts:
        """What the client has counted."""

    @property
    def member_id(self) -> str | None:
        """The id of the member in its group; None: it has none."""

    async def subscription(self, instance_id: bytes) -> MetricsSubscription | None:
        """Ask a broker which metrics it wants. None: the broker takes no metrics of clients.

        Raises:
            BrokerError: No broker has answered.
        """

    async def compressed(
        self, payload: bytes, subscription: MetricsSubscription
    ) -> tuple[int, bytes]:
        """Return Kafka's number of a compression that the broker reads, and the payload in it."""

    async def push(
        self, subscription: MetricsSubscription, packed: tuple[int, bytes], *, is_last: bool
    ) -> PushAnswer:
        """Push metrics to the broker of the subscription.

        Args:
            packed: As :meth:`compressed` has returned it.
            is_last: The client is about to close.

        Raises:
            BrokerError: The broker has not answered.
        """

    async def reconnected(self) -> None:
        """Wait until the client has made another connection: a broker may be a newer one now."""
