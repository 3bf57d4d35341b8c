"""One run of the demo, from the broker's start to the numbers that its summary is made of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any
from uuid import uuid4

from reactive_kafka.broker.client import Inspector
from reactive_kafka.broker.kafka_connector import EMBEDDED, KafkaConnector
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.records import TopicPartition

from . import shop
from .checks import NO_SPARK, Outcome, is_red_for
from .screen import Screen
from .traffic import RATES, Traffic
from .watch import PoisonEvents, ReadyProbe

PARTITIONS = 4
READY_WITHIN_S = 120.0
DRAINED_WITHIN_S = 45.0
QUIET_END = 0.15, 5.0
"""The end of the time, in which nothing is produced any more: this part of it, this many seconds at
most.
"""
HELD_AFTER = 0.1
"""When the payment that waits for approval is sent: after this part of the time."""
SEEN_RED_FOR_S = 2.0
"""How long people get to see the health red, before the payment is approved."""
LOOK_S = 0.05
SHOW_EVERY_S = 0.25


class Play:
    """One run.

    Args:
        seconds: How long, from the moment that everything is ready.
        screen: Where it is shown.
        asked: Set by whoever wants an early end.
    """

    def __init__(self, seconds: float, screen: Screen, asked: asyncio.Event) -> None:
        self._app = shop.app
        self._seconds = seconds
        self._screen = screen
        self._asked = asked
        self._began = 0.0
        self._settled_at: float | None = None
        self._own_lag: Mapping[TopicPartition, int | None] = {}
        self._poison = PoisonEvents()

    async def run(self) -> Outcome | None:
        """Everything, from start to stop; None if an early end was asked for.

        Raises:
            CommandFailed: It did not get ready.
        """
        async with AsyncExitStack() as stack:
            connector = await self._prepare(stack)
            inspector = connector.inspector(properties={})
            stack.push_async_callback(inspector.stop)
            await inspector.start()
            producer = connector.producer(name="demo", properties={})
            stack.push_async_callback(producer.stop)
            await producer.start()
            traffic = Traffic(producer, self._topics())
            probe = await self._run_app(traffic, inspector)
            if probe is None:
                return None
            return await self._outcome(traffic, probe, inspector)

    async def _prepare(self, stack: AsyncExitStack) -> KafkaConnector:
        """The broker and topics of this run: one inside this process, or names of our own in a
        cluster.
        """
        settings = self._app.configure()
        connector = KafkaConnector(settings.bootstrap_servers)
        stack.push_async_callback(connector.close)
        overrides: dict[str, Any] = {"kafka": {"bootstrap_servers": connector.bootstrap()}}
        if settings.bootstrap_servers != EMBEDDED:
            run = uuid4().hex[:6]
            names = {channel: f"demo-{run}-{channel}" for channel in RATES}
            overrides["incoming"] = {
                channel: {"topic": name, "group_id": name} for channel, name in names.items()
            }
        self._app.configure(overrides=overrides)
        embedded = connector.embedded
        self._screen.say(
            f"broker: {'inside this process' if embedded else settings.bootstrap_servers}"
        )
        if embedded is not None:
            for topic in self._topics().values():
                embedded.create_topic(topic, PARTITIONS)
            return connector
        inspector = connector.inspector(properties={})
        await inspector.start()
        try:
            for topic in self._topics().values():
                await inspector.create_topic(topic, PARTITIONS)
        finally:
            await inspector.stop()
        created = ", ".join(self._topics().values())
        self._screen.say(f"topics and groups of this run: {created}; they are left there")
        return connector

    def _topics(self) -> dict[str, str]:
        return {channel: self._app.settings.incoming[channel].topics[0] for channel in RATES}

    async def _run_app(self, traffic: Traffic, inspector: Inspector) -> ReadyProbe | None:
        """The application with everything around it, until it has stopped; None after an early
        end.
        """
        self._app.observe(self._poison)
        await self._app.start()
        try:
            http = self._app.http
            if http is None:
                raise CommandFailed("the demo needs [http] enabled = true")
            self._screen.say(f"health and metrics: {http.url}/health {http.url}/metrics")
            probe = ReadyProbe(http.url)
            watching = [asyncio.ensure_future(probe.run()), asyncio.ensure_future(self._show())]
            try:
                if await self._is_ready(probe):
                    await asyncio.gather(
                        self._produce(traffic), self._hold_a_payment(traffic, probe)
                    )
                    await self._drain(traffic, inspector)
                    self._show_now(is_last=True)
            finally:
                await _cancel(watching)
        finally:
            # An early end leaves it behind, and the stop would wait for it.
            shop.approve()
            self._screen.say("stopping: handlers finish, the last positions are committed")
            await self._app.stop()
        return None if self._asked.is_set() else probe

    async def _is_ready(self, probe: ReadyProbe) -> bool:
        """Wait until the application is, and start the clock; False after an early end."""
        self._screen.say(f"waiting until everything is ready: {_spark()}")
        is_ready = await self._until(
            lambda: probe.last is not None and probe.last.status == 200, READY_WITHIN_S
        )
        if self._asked.is_set():
            return False
        if not is_ready:
            reasons = [
                f"{check.name}: {check.data.get('reason')}"
                for check in self._app.health().ready.checks
            ]
            raise CommandFailed(f"not ready after {READY_WITHIN_S:g} s: {'; '.join(reasons)}")
        probe.answers.clear()
        self._began = time.monotonic()
        return True

    async def _produce(self, traffic: Traffic) -> None:
        part, most_s = QUIET_END
        producing_s = self._seconds - min(part * self._seconds, most_s)
        self._screen.say(
            f"ready: producing for {producing_s:.0f} s, then waiting until all of it is handled"
        )
        await traffic.run(lambda: self._asked.is_set() or self._elapsed_s >= producing_s)

    async def _hold_a_payment(self, traffic: Traffic, probe: ReadyProbe) -> None:
        """The payment that nobody settles: poison, a red probe, then the approval and a green
        one.
        """
        limit_s = self._app.settings.incoming["payments"].unprocessed_record_max_age_s
        await self._until(lambda: self._elapsed_s >= HELD_AFTER * self._seconds, self._seconds)
        traffic.hold_a_payment()
        if not await self._until(
            lambda: traffic.held is not None and bool(shop.waiting_for_approval), 10.0
        ):
            return
        self._screen.say(
            f"{self._at}: a payment waits for approval: {traffic.held}. Nobody settles it"
        )
        if await self._until(lambda: bool(self._poison.found), limit_s + 5.0):
            found = self._poison.found[0]
            self._screen.say(
                f"{self._at}: poison found: {found.place}, unsettled for {found.age_s:.2f} s"
            )
        if await self._until(
            lambda: probe.has_seen(lambda answer: is_red_for(answer, traffic.held)), 5.0
        ):
            self._screen.say(
                f"{self._at}: GET /health/ready is 503 and names it; the other partitions go on"
            )
        await self._until(lambda: False, SEEN_RED_FOR_S)
        shop.approve()
        settled_at = self._settled_at = asyncio.get_running_loop().time()
        self._screen.say(f"{self._at}: approved: the record is settled")
        if await self._until(
            lambda: probe.has_seen(lambda a: a.status == 200 and a.at > settled_at), 10.0
        ):
            self._screen.say(f"{self._at}: GET /health/ready is 200 again")

    async def _drain(self, traffic: Traffic, inspector: Inspector) -> None:
        """Wait until everything is handled and committed, within a limit; the summary tells whether
        it came to that.
        """
        deadline = time.monotonic() + DRAINED_WITHIN_S
        is_done = await self._until(lambda: self._is_handled(traffic), DRAINED_WITHIN_S)
        while is_done and not self._asked.is_set() and time.monotonic() < deadline:
            positions = await self._positions(inspector)
            is_committed = all((committed or 0) == end for committed, end in positions.values())
            if is_committed and not any(self._lag_as_the_app_tells_it().values()):
                break
            await self._until(lambda: False, 0.3)
        self._own_lag = self._lag_as_the_app_tells_it()

    def _lag_as_the_app_tells_it(self) -> dict[TopicPartition, int | None]:
        return {
            partition.partition: partition.lag
            for channel in self._app.facts().channels
            for partition in channel.partitions
        }

    def _is_handled(self, traffic: Traffic) -> bool:
        records = all(
            traffic.confirmed[channel] <= handled.keys() for channel, handled in _handled().items()
        )
        return records and _clicks() >= len(traffic.confirmed["clicks"])

    async def _positions(
        self, inspector: Inspector
    ) -> dict[TopicPartition, tuple[int | None, int]]:
        """partition -> committed position and end of the log, asked from the broker."""
        settings = self._app.settings.incoming
        known = await inspector.topics()
        positions: dict[TopicPartition, tuple[int | None, int]] = {}
        for channel, topic in self._topics().items():
            committed = await inspector.committed(settings[channel].group_id or "", known[topic])
            for partition, end in (await inspector.end_offsets(known[topic])).items():
                positions[partition] = (
                    committed[partition].offset if partition in committed else None,
                    end,
                )
        return positions

    async def _outcome(self, traffic: Traffic, probe: ReadyProbe, inspector: Inspector) -> Outcome:
        return Outcome(
            unconfirmed=traffic.failed,
            produced=traffic.confirmed,
            handled=_handled(),
            clicks=_clicks(),
            batches=len(shop.clicks_by_batch),
            has_spark=shop.has_spark,
            positions=await self._positions(inspector),
            own_lag=self._own_lag,
            held=traffic.held,
            found=self._poison.found,
            answers=probe.answers,
            settled_at=self._settled_at,
        )

    async def _show(self) -> None:
        while True:
            if self._began:
                self._show_now()
            await asyncio.sleep(SHOW_EVERY_S)

    def _show_now(self, is_last: bool = False) -> None:
        title = f"{self._elapsed_s:.0f} of {self._seconds:.0f} s"
        self._screen.show(self._app.facts(), self._app.health(), title, is_last=is_last)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def _at(self) -> str:
        return f"{self._elapsed_s:5.1f} s"

    async def _until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for *condition*, not beyond the limit nor an early end; whether it came."""
        deadline = time.monotonic() + limit_s
        while not self._asked.is_set() and time.monotonic() < deadline:
            if condition():
                return True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), LOOK_S)
        return False


def _handled() -> Mapping[str, Mapping[int, int]]:
    return {"orders": shop.shipped, "payments": shop.booked}


def _clicks() -> int:
    return sum(sum(pages.values()) for pages in list(shop.clicks_by_batch.values()))


def _spark() -> str:
    if shop.has_spark:
        return "Spark takes some seconds to start"
    return f"it runs without Spark, {NO_SPARK}"


async def _cancel(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
