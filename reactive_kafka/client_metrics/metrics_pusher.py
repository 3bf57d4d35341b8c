"""Pushes the metrics of one client of a channel to the broker that subscribes to them (KIP-714).

Consuming does not depend on it: whatever goes wrong is told once at level DEBUG, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from reactive_kafka.backoff import drawn_chance
from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.client_metrics import MetricsReceiver, MetricsSubscription
from reactive_kafka.broker.error_codes import error_code
from reactive_kafka.client_metrics.consumer_points import (
    ConsumedPartition,
    ConsumerPoints,
    our_points,
    wants_ours,
)
from reactive_kafka.client_metrics.otlp import Point, Reading, metrics_data
from reactive_kafka.client_metrics.push_schedule import PushSchedule
from reactive_kafka.client_metrics.rebalance_times import TimedRebalances
from reactive_kafka.client_metrics.wanted_points import PushedSums, without_partitions
from reactive_kafka.clock import Clock
from reactive_kafka.errors import describe
from reactive_kafka.observe.facts import ChannelFacts
from reactive_kafka.version import VERSION

logger = logging.getLogger("reactive_kafka.client_metrics")

LAST_PUSH_S = 1.0
"""How long the end of a client may wait for its last push."""
SCOPE = "reactive_kafka"
MEMBER_LABEL = "group_member_id"
_NS = 1_000_000_000


class MetricsPusher:
    """Asks which metrics are wanted, and pushes them, until the client is closed.

    Args:
        name: The client's name, for logs.
        labels: What describes the client, under KIP-714's names: ``group_id`` and so on.
        partitions: Returns what the client reads.
        assigned: Returns how many partitions it has.
        facts: Returns the facts of its channel. None: another client of the channel pushes those.
    """

    def __init__(
        self,
        name: str,
        labels: Mapping[str, str],
        clock: Clock,
        *,
        partitions: Callable[[], Sequence[ConsumedPartition]],
        assigned: Callable[[], int],
        facts: Callable[[], ChannelFacts] | None,
    ) -> None:
        self._name = name
        self._labels = labels
        self._clock = clock
        self._partitions = partitions
        self._assigned = assigned
        self._facts = facts
        self._schedule = PushSchedule()
        self._points = ConsumerPoints(clock.monotonic())
        self._sums = PushedSums()
        # When the sums began that are pushed next, by the wall clock.
        self._began_at = clock.wall()
        self._pushed_at = self._began_at
        # The kinds of problems that were logged.
        self._told: set[str] = set()

    def timed(self, listener: RebalanceListener) -> RebalanceListener:
        """Return a listener that times the rebalances for the metrics, and passes them on."""
        return TimedRebalances(listener, self._points.rebalances, self._clock)

    async def run(self, receiver: MetricsReceiver) -> None:
        """Ask and push by the connections of a client that has just connected.

        Cancellation: ends it. A push that is on its way may still be received.
        """
        self._points.count_with(receiver.counts)
        self._schedule.connected(self._clock.monotonic())
        while True:
            wait_s = self._schedule.wait_s(self._clock.monotonic())
            if wait_s is None:
                await receiver.reconnected()
                self._schedule.connected(self._clock.monotonic())
            else:
                await asyncio.sleep(wait_s)
            await self._take_turn(receiver)

    async def close(self, receiver: MetricsReceiver) -> None:
        """Push once more if metrics are wanted, because the client is about to close."""
        subscription = self._schedule.subscription
        if subscription is None:
            return
        try:
            async with asyncio.timeout(LAST_PUSH_S):
                await self._push(receiver, subscription, is_last=True)
        except Exception as error:
            self._tell(type(error).__name__, f"the last push has failed: {describe(error)}")

    async def _take_turn(self, receiver: MetricsReceiver) -> None:
        subscription = self._schedule.subscription
        try:
            if subscription is None:
                await self._ask(receiver)
            else:
                await self._push(receiver, subscription, is_last=False)
        except Exception as error:
            # Also a bug of ours: metrics are no reason to stop a channel.
            self._schedule.unanswered(self._clock.monotonic(), drawn_chance())
            self._tell(type(error).__name__, describe(error))

    async def _ask(self, receiver: MetricsReceiver) -> None:
        answer = await receiver.subscription(self._schedule.instance_id)
        if answer is None:
            self._schedule.unsupported()
            self._tell("unsupported", "the broker takes no metrics of clients")
            return
        self._tell_refusal(answer.error_code)
        self._schedule.asked(answer, self._clock.monotonic(), drawn_chance())
        if self._schedule.subscription is not None:
            instance = self._schedule.instance_id.hex()
            self._tell(f"instance {instance}", f"the broker wants metrics of instance {instance}")

    async def _push(
        self, receiver: MetricsReceiver, subscription: MetricsSubscription, *, is_last: bool
    ) -> None:
        measured = tuple(self._measured(subscription))
        at = self._clock.wall()
        packed = await self._packed(receiver, subscription, measured, at)
        if packed is None:
            self._tell("too large", f"more than {subscription.most_bytes} bytes: nothing is pushed")
            self._schedule.skipped(self._clock.monotonic())
            return
        answer = await receiver.push(subscription, packed, is_last=is_last)
        self._tell_refusal(answer.error_code)
        self._schedule.pushed(answer, self._clock.monotonic())
        if not answer.error_code:
            self._sums.confirmed(measured)
            self._pushed_at = at

    def _measured(self, subscription: MetricsSubscription) -> Iterable[Point]:
        """Return all points that may be wanted.

        It reads the application, so it runs on its loop.
        """
        now = self._clock.monotonic()
        yield from self._points.measured(self._partitions(), self._assigned(), now)
        if self._facts is not None and wants_ours(subscription.prefixes):
            yield from our_points(self._facts())

    async def _packed(
        self,
        receiver: MetricsReceiver,
        subscription: MetricsSubscription,
        measured: Sequence[Point],
        at: float,
    ) -> tuple[int, bytes] | None:
        """Return the wanted points as the broker takes them; None: they are too many for it."""
        wanted = self._sums.as_wanted(measured, subscription)
        fewer = without_partitions(wanted)
        labels = dict(self._labels)
        if receiver.member_id:
            labels[MEMBER_LABEL] = receiver.member_id
        began = self._pushed_at if subscription.is_delta else self._began_at
        for points in (fewer,) if self._schedule.is_reduced else (wanted, fewer):
            reading = Reading(
                points=points,
                resource=labels,
                scope=(SCOPE, VERSION),
                began_ns=round(began * _NS),
                at_ns=round(at * _NS),
                is_delta=subscription.is_delta,
            )
            # Thousands of partitions take long to write, so that is done in a thread.
            payload = await asyncio.to_thread(metrics_data, reading)
            packed = await receiver.compressed(payload, subscription)
            if len(packed[1]) <= subscription.most_bytes:
                return packed
        return None

    def _tell_refusal(self, code: int) -> None:
        if code:
            name = error_code(code).name
            self._tell(name, f"the broker has refused: {name}")

    def _tell(self, kind: str, text: str) -> None:
        """Log a problem at level DEBUG, the first time that this kind of it comes."""
        if kind not in self._told:
            self._told.add(kind)
            logger.debug("metrics of client %s: %s", self._name, text)
