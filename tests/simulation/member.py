"""One start of the application under test, and what its handlers do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reactive_kafka import App, Batch, Later, Message
from reactive_kafka.errors import ChannelClosedError, ConfigError
from reactive_kafka.observe import events as told
from reactive_kafka.records import TopicPartition
from tests.simulation.around import Around
from tests.simulation.checker import Tally
from tests.simulation.fake_spark import FakeEngine
from tests.simulation.fake_store import StoreClient
from tests.simulation.odd_work import CONTEXT, OddWork, is_own, own
from tests.simulation.offsets_work import OffsetsWork
from tests.simulation.scenario import TOPIC, Load, member_kind
from tests.simulation.seam import Seam, client_of
from tests.simulation.several_work import SeveralWork
from tests.simulation.spark_work import SparkWork

if TYPE_CHECKING:
    from tests.simulation.world import World

Payload = dict[str, Any]
SPARK = {"jars": "connector"}
"""Of nobody's: the engine reads the broker's logs by itself."""
STARTS_IN_S = (0.0, 0.2, 2.0, 6.0)
"""How long Spark takes to come up."""


class HandlerError(Exception):
    """A handler's own."""


def _begins_anew(event: told.ChannelStateChanged) -> bool:
    return event.old in ("failed", "stopped") and event.new == "connecting"


class Member:
    """An application from its start to its end or crash."""

    def __init__(self, world: World, who: str) -> None:
        self.world = world
        self.who = who
        # As a killed process: nothing that it does counts any more.
        self.is_dead = False
        self.is_leaving = False
        self.is_restarting = False
        self.looks_down = 0
        self._said = ""
        connector = world.broker.connector(assignment=member_kind(world.scenario, who))
        self.seam = Seam(
            who,
            connector,
            self.note,
            world.called,
            world.next_request,
            world.is_beside,
            joined=self._joined,
            sent=world.sent,
            lost=world.lost,
        )
        # To be acked later.
        self.held: list[tuple[Message[Payload], int]] = []
        self.jobs: set[asyncio.Task[None]] = set()
        self.max_attempts = world.scenario.settings.get("retry", {}).get("max_attempts", 1)
        tables = {
            "incoming": {TOPIC: dict(world.scenario.settings)},
            "limits": {"shared": {"concurrency": world.scenario.slots or 1}},
            "http": {"enabled": False},
            "spark": SPARK,
        }
        self.app = App(tables, observer=self)
        self.app._connector, self.app._clock = self.seam, world.clock
        if (database := world.database) is not None:
            self.app._stores = lambda _: StoreClient(database, self)
        self.offsets = OffsetsWork(self)
        self.odd = OddWork(self)
        self.around = Around(self)
        self.several = SeveralWork(self)
        self.spark: FakeEngine | None = None
        self._decorate()

    def _decorate(self) -> None:
        async def single(message: Message[Payload]) -> None:
            await self.work([message])

        async def batch(messages: Batch[Payload]) -> None:
            await self.work(messages)

        if self.world.scenario.middleware:
            self.app.middleware(self.around.middleware)
        if any(not kind.startswith("seek") for kind in self.world.scenario.hooks):
            self.app.on_assigned(TOPIC)(self.odd.assigned)
        if self.world.scenario.mode == "spark":
            self.spark = self.app._spark_engine = FakeEngine(
                self.world.broker, self.world.dice.choice(STARTS_IN_S)
            )
            self.app.spark(TOPIC)(SparkWork(self).function)
        elif self.world.scenario.mode == "batch":
            self.app.incoming(TOPIC)(batch)
        elif self.world.scenario.mode != "iterate":
            self.several.decorate(single)

    def note(self, kind: str, who: str = "", **details: Any) -> None:
        """Add to the history, unless this process is dead."""
        if not self.is_dead:
            self.world.note(kind, who or self.who, **details)

    def _joined(self, partition: TopicPartition) -> None:
        if partition.topic == TOPIC:
            self.odd.joined(partition)

    # -- life

    async def start(self) -> None:
        self.note("member", note="start")
        await self.app.start()
        if not self.world.scenario.settings.get("enabled", True):
            self.spawn(self._start_late())
        elif self.world.scenario.mode == "iterate":
            self.spawn(self._iterate())

    async def _start_late(self) -> None:
        await asyncio.sleep(self.world.dice.choice([0.0, 0.5, 3.0]))
        self.world.bite("started late")
        # The application stops meanwhile.
        with suppress(ChannelClosedError):
            await self.start_channel()

    async def stop_channel(self) -> None:
        """Stop the channel by hand."""
        if not self.is_leaving:
            await self.app.channel(TOPIC).stop()

    async def start_channel(self) -> None:
        """Start it again, where the application goes on."""
        if self.is_leaving or self.is_dead:
            return
        await self.app.channel(TOPIC).start()
        if self.world.scenario.mode == "iterate":
            self.spawn(self._iterate())

    async def stop(self) -> None:
        self.is_leaving = True
        self.note("member", note="leave")
        await self.app.stop()
        for job in tuple(self.jobs):
            job.cancel()
        await asyncio.gather(*self.jobs, return_exceptions=True)
        self.note("member", note="gone")

    async def restart(self) -> None:
        """Start the channel again, where it has failed and its end is over."""
        if any(one.state == "failed" for one in self.app.facts().channels):
            self.is_restarting = True
            try:
                await self.app.channel(TOPIC).restart()
            except ChannelClosedError:
                # The application stops meanwhile.
                return
            finally:
                self.is_restarting = False
            if self.world.scenario.mode == "iterate":
                for job in tuple(self.jobs):
                    # What it holds is of before.
                    job.cancel()
                self.spawn(self._iterate())

    def spawn(self, job: Any) -> None:
        task = asyncio.create_task(job, name=f"job of {self.who}")
        self.jobs.add(task)
        task.add_done_callback(self.jobs.discard)
        task.add_done_callback(self.world.look_at_end)

    # -- what the application says

    def on(self, event: told.Event) -> None:
        """Note it, and what explains records that no handler ends."""
        if not self.is_dead:
            self.world.say(self.who, event)
        if isinstance(event, told.RecordIgnored):
            self.note("ignored", tp=tuple(event.partition), offset=event.offset)
        elif isinstance(event, told.OffsetReset):
            self._note_reset(event)
        elif isinstance(event, told.RecordPoisoned):
            self.note("poison", tp=tuple(event.partition), offset=event.offset)
        elif isinstance(event, told.HandlerAbandoned):
            self.note("abandoned", note=f"{event.waited_s:.3f} s")
        elif isinstance(event, told.ChannelFailed):
            self.note("failed", note=event.reason)
        elif isinstance(event, told.ChannelStateChanged) and _begins_anew(event):
            self.note("restarted")
        else:
            self.world.bite(f"event {type(event).__name__}")

    def _note_reset(self, event: told.OffsetReset) -> None:
        tp, before = tuple(event.partition), len(self.world.events)
        count = -1 if event.skipped is None else event.skipped
        since = f"from {event.from_offset}"
        self.note("reset", tp=tp, offset=event.to_offset, note=since, text=event.to, count=count)
        if event.to == "latest":
            self.world.bite("latest")
            self.world.pass_over(self, event.partition, event.to_offset, before)

    def look(self) -> bool:
        """Note whether it says that it is ready; whether it says that it is alive."""
        health = self.app.health()
        down = [check for check in health.ready.checks if check.status == "DOWN"]
        says = (
            "UP"
            if health.ready.is_up
            else "DOWN: why"
            if all(one.data.get("reason") for one in down)
            else "DOWN"
        )
        if says != self._said:
            self._said = says
            self.note("ready", note=says)
        return health.live.is_up

    def tally(self) -> Tally:
        """What it says of itself now."""
        facts = [one for one in self.app.facts().channels if one.channel == TOPIC]
        health = self.app.health()
        parts = [part for one in facts for part in one.partitions]
        totals = [total for one in facts for total in one.totals.values()]
        return Tally(
            self.who,
            len(self.world.events),
            in_flight=sum(part.in_flight for part in parts),
            queued=sum(part.queued for part in parts),
            acked=sum(total.acked for total in totals),
            nacked=sum(sum(total.nacked.values()) for total in totals),
            received=sum(total.received for total in totals),
            skipped=sum(sum(total.skipped.values()) for total in totals),
            live=health.live.is_up,
            ready=health.ready.is_up,
            why="; ".join(
                str(check.data) for check in health.ready.checks if check.status == "DOWN"
            ),
        )

    # -- what its handlers do

    async def work(self, messages: Sequence[Message[Payload]]) -> int:
        """One call of the handler, for one message or a batch. Returns the number of the call."""
        call = self.world.next_call()
        attempt = messages[0].attempt
        loads = [self.world.loads[message.payload["id"]] for message in messages]
        times = [self.world.count_delivery(load.id) for load in loads]
        for message in messages:
            self._note_of(
                "begin", message, message.payload["id"], call, attempt, text=self._context()
            )
        asked, began = "", self.world.clock.monotonic()
        outcome, failure = "cancelled", "raised" if attempt < self.max_attempts else "failed"
        fails_after = self.around.fails_after(messages, loads, times)
        try:
            async with self.offsets.block(messages):
                for message, load, time in zip(messages, loads, times, strict=True):
                    await self._work_on(
                        message, load, time, call, attempt, is_alone=len(messages) == 1
                    )
            outcome = "ok"
            if self.odd.has_cancelled_call or fails_after:
                # As a task of asyncio's that has cancelled itself, and returns; or by middleware.
                outcome = failure
        except BaseException as error:
            if isinstance(error, Later):
                outcome, asked = "later", f"{error.scope} {error.delay_s}"
            elif (
                is_own(error)
                or (self.odd.has_cancelled_call and isinstance(error, asyncio.CancelledError))
                or (isinstance(error, asyncio.CancelledError) and self._took_too_long(began))
            ):
                outcome = failure
            raise
        finally:
            self.odd.forget_cancellation()
            for message, load in zip(messages, loads, strict=True):
                if not (outcome == "ok" and _is_nacked(load)):
                    self._note_of("end", message, outcome, call, attempt, text=asked)
        self.offsets.settle_some(
            [one for one, load in zip(messages, loads, strict=True) if not _is_nacked(load)]
        )
        if self.world.scenario.settings.get("ack") == "manual":
            for message, load in zip(messages, loads, strict=True):
                if not _is_nacked(load):
                    await self._settle(message, load, call)
        return call

    def _took_too_long(self, began: float) -> bool:
        """Whether the call was cancelled for ``attempt_timeout``, and by nobody else."""
        limit_s = self.world.scenario.settings.get("attempt_timeout")
        task = asyncio.current_task()
        took_s = self.world.clock.monotonic() - began
        return (
            limit_s is not None
            and took_s >= limit_s - 1e-6
            and task is not None
            and task.cancelling() == 1
        )

    def never_called(self, messages: Sequence[Message[Payload]]) -> None:
        """Middleware is about to raise before the handler is called."""
        call, attempt = self.world.next_call(), messages[0].attempt
        for message in messages:
            self.world.count_delivery(message.payload["id"])
            self._note_of(
                "begin", message, message.payload["id"], call, attempt, text=self._context()
            )
        for message in messages:
            self._note_of(
                "end", message, "raised" if attempt < self.max_attempts else "failed", call, attempt
            )

    async def _work_on(
        self,
        message: Message[Payload],
        load: Load,
        time: int,
        call: int,
        attempt: int,
        *,
        is_alone: bool,
    ) -> None:
        self.offsets.fold(message, load, call, early=True)
        if time <= load.times:
            await self.odd.act(load)
        if load.odd == "nack-waits":
            self._note_of("end", message, "failed", call, attempt)
            await self.odd.nack(message, HandlerError(load.id))
        elif await self._behave(load, time):
            self.offsets.fold(message, load, call, early=False)
        elif load.behaviour == "bad" and not is_alone and not self.world.scenario.transactions:
            self._note_of("end", message, "failed", call, attempt)
            message.nack(HandlerError("bad"))
        else:
            raise own(
                asyncio.CancelledError() if load.behaviour == "cancels" else HandlerError(load.id)
            )

    async def _behave(self, load: Load, time: int) -> bool:
        """What the handler does with one record; False: it fails."""
        if load.behaviour == "bad":
            return False
        if load.behaviour in ("flaky", "cancels"):
            await asyncio.sleep(0)
            return time > load.times
        if load.behaviour == "yields":
            await asyncio.sleep(0)
        elif load.behaviour == "slow" or (load.behaviour == "long" and time <= 2):
            await asyncio.sleep(load.takes_s)
        elif load.behaviour == "stuck" and time == 1:
            await self.world.healed.wait()
        return True

    async def _settle(self, message: Message[Payload], load: Load, call: int) -> None:
        """By hand: at once, later, or only when the scenario heals."""
        if load.odd in ("ack-waits", "ack-cancelled"):
            self._note_of("ack", message, "", call, 1)
            await self.odd.ack(message, load.odd)
        elif load.behaviour == "stuck":
            self.held.append((message, call))
        elif load.behaviour in ("quick", "flaky"):
            self.ack(message, call)
        else:
            # Sooner than poison.
            self.spawn(self._ack_later(message, call, min(load.takes_s, 1.0)))

    async def _ack_later(self, message: Message[Payload], call: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self.ack(message, call)

    def ack(self, message: Message[Payload], call: int = 0) -> asyncio.Future[bool]:
        self._note_of("ack", message, "", call, 1)
        return self.offsets.ack(message)

    async def _iterate(self) -> None:
        try:
            async for message in self.app.channel(TOPIC):
                await self._iterated(message)
        except ChannelClosedError:
            # It has failed, and is started again.
            pass

    async def _iterated(self, message: Message[Payload]) -> None:
        try:
            call = await self.work([message])
        except HandlerError as error:
            message.nack(error)
        else:
            # With the number of its call: a loop that outlives a stop acks what a later life has
            # begun again.
            if self.world.scenario.settings.get("ack") != "manual":
                self.ack(message, call)

    def _context(self) -> str:
        """What another handler has left; an application that iterates has one context for all."""
        return "" if self.world.scenario.mode == "iterate" else CONTEXT.get()

    def _note_of(
        self,
        kind: str,
        message: Message[Payload],
        note: str,
        call: int,
        attempt: int,
        text: str = "",
    ) -> None:
        self.note(
            kind,
            tp=(message.topic, message.partition),
            offset=message.offset,
            note=note,
            call=call,
            attempt=attempt,
            client=client_of(message.record.headers),
            text=text,
        )


def _is_nacked(load: Load) -> bool:
    """Whether its handler nacks a record by itself, and returns."""
    return load.behaviour == "bad" or load.odd == "nack-waits"


def encode(load: Load) -> bytes:
    """The bytes of a record."""
    return b"{no json" if load.behaviour == "unreadable" else json.dumps({"id": load.id}).encode()


def is_known(settings: dict[str, Any]) -> bool:
    """Whether the code under test takes these settings."""
    try:
        App({"incoming": {TOPIC: {"group_id": "g", **settings}}, "spark": SPARK}).configure()
    except ConfigError:
        return False
    return True
