"""When a client asks for its subscription, and when it pushes. Pure.

Source: KIP-714, "Client behavior", and ``ClientTelemetryReporter`` of Kafka's own clients.
"""

from __future__ import annotations

from math import inf

from reactive_kafka.backoff import Backoff
from reactive_kafka.broker.client_metrics import (
    NEW_INSTANCE,
    NO_ERROR,
    MetricsSubscription,
    PushAnswer,
)
from reactive_kafka.broker.error_codes import error_code

USUAL_INTERVAL_S = 300.0
"""Kafka's default of the time between two pushes, for answers that name none."""
FIRST_PUSH = (0.5, 1.5)
"""The first push comes after a random part of the interval between these two. So clients that were
started together do not push together.
"""
AT_ONCE = frozenset({"UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE"})
"""The subscription has changed: ask for it again without a wait."""
NEVER_AGAIN = frozenset({"INVALID_REQUEST", "INVALID_RECORD", "UNSUPPORTED_VERSION"})
"""The broker and this client do not understand each other."""
TOO_LARGE = "TELEMETRY_TOO_LARGE"
UNANSWERED = Backoff(1.0, 60.0)
"""The waits after requests that no broker has answered."""
MOST_IN_A_ROW = 3
"""How often a subscription is asked for again at once. A broker that refuses the new one, too, is
asked after the interval.
"""


class PushSchedule:
    """What a client has to do next about its metrics, and when.

    Attributes:
        instance_id: The id of the client, which a broker has drawn.
        subscription: What the broker wants; None: that has to be asked for.
        is_reduced: A push was too large, so series of partitions are left out.
    """

    def __init__(self) -> None:
        self.instance_id = NEW_INSTANCE
        self.subscription: MetricsSubscription | None = None
        self.is_reduced = False
        self._next_at = -inf
        self._interval_s = USUAL_INTERVAL_S
        self._failures = 0
        self._asked_at_once = 0

    def is_due(self, now: float) -> bool:
        """Return whether something has to be done now."""
        return now >= self._next_at

    def wait_s(self, now: float) -> float | None:
        """Return how long nothing has to be done; None: until the client connects again."""
        if self._next_at == inf:
            return None
        return max(0.0, self._next_at - now)

    def connected(self, now: float) -> None:
        """Ask again whether metrics are wanted, because this may be another broker."""
        self.subscription = None
        self._next_at = now

    def unsupported(self) -> None:
        """Do nothing until the client connects again, because the broker takes no metrics."""
        self.subscription = None
        self._next_at = inf

    def asked(self, answer: MetricsSubscription, now: float, chance: float) -> None:
        """Note the answer of a broker to the question what it wants.

        Args:
            chance: A random number from 0 to 1.
        """
        self._failures = 0
        if answer.error_code != NO_ERROR:
            self._refused(answer.error_code, answer.throttle_s, now)
            return
        self.instance_id = answer.instance_id
        has_interval = answer.push_interval_s > 0
        self._interval_s = answer.push_interval_s if has_interval else USUAL_INTERVAL_S
        wait_s = self._interval_s
        if answer.prefixes:
            self.subscription = answer
            self.is_reduced = False
            low, high = FIRST_PUSH
            wait_s *= low + (high - low) * chance
        self._next_at = now + max(wait_s, answer.throttle_s)

    def pushed(self, answer: PushAnswer, now: float) -> None:
        """Note the answer of a broker to a push."""
        self._failures = 0
        if answer.error_code != NO_ERROR:
            self._refused(answer.error_code, answer.throttle_s, now)
            return
        self._asked_at_once = 0
        self._next_at = now + max(self._interval_s, answer.throttle_s)

    def skipped(self, now: float) -> None:
        """Note that there was nothing to push that the broker would take."""
        self._next_at = now + self._interval_s

    def unanswered(self, now: float, chance: float) -> None:
        """Note that no broker has answered. Another one may be asked next, which knows nothing."""
        self.subscription = None
        self._next_at = now + UNANSWERED.wait_s(self._failures, chance)
        self._failures += 1

    def _refused(self, code: int, throttle_s: float, now: float) -> None:
        name = error_code(code).name
        if name in NEVER_AGAIN:
            self.unsupported()
            return
        if name == TOO_LARGE and self.subscription is not None:
            self.is_reduced = True
        else:
            self.subscription = None
        wait_s = self._interval_s
        if name in AT_ONCE and self._asked_at_once < MOST_IN_A_ROW:
            self._asked_at_once += 1
            wait_s = 0.0
        self._next_at = now + max(wait_s, throttle_s)
