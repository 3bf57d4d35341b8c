"""Carries out a scenario's faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import count
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.memory.scripted_faults import Call
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    CommitRefusedError,
    TransientBrokerError,
)
from reactive_kafka.records import TopicPartition
from tests.simulation.fake_store import LATE_S, STORE_TIMEOUT_S, Database
from tests.simulation.scenario import ANSWER_TIMEOUT_S, DELAYED_GROUP, GROUP, HARMLESS, TOPIC, Fault

if TYPE_CHECKING:
    from tests.simulation.member import Member
    from tests.simulation.world import World

WHOLE = ("", -1)
"""Of an event that is about no partition of its own."""
AFTER_STORE_S = 6.0
"""How long after a fault of the store what it held up may still be on its way."""


class Disturbances:
    """The faults of one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._numbers = count(1)

    async def run(self, fault: Fault) -> None:
        """Wait for the fault's moment, and carry it out to its end."""
        moment = asyncio.Event()
        if fault.at_call:
            self.world.at_call(fault.at_call, moment.set)
            await moment.wait()
        else:
            await self.world._until(fault.at)
        name = f"{fault.kind} #{next(self._numbers)}"
        act = getattr(self, "_" + fault.kind.replace("-", "_"))
        is_harmless = fault.kind in HARMLESS
        self.world.note("calm" if is_harmless else "fault", note=name)
        self.world.bite(f"fault {fault.kind}")
        await act(fault)
        self.world.note("calm", note=name)

    def _pick(self, fault: Fault, among: Any) -> Any:
        return among[int(fault.pick * len(among))] if among else None

    def _member(self, fault: Fault) -> Member | None:
        staying = [member for member in self.world.members if not member.is_leaving]
        picked: Member | None = self._pick(fault, staying)
        return picked

    # -- the broker

    async def _commit_fails(self, fault: Fault) -> None:
        stored = fault.pick < 0.3
        error = TransientBrokerError("injected")
        self.world.broker.fail_next("commit", error, fault.times, stored=stored)
        await asyncio.sleep(
            fault.times * float(self.world.scenario.settings["commit_interval"]) + 1.0
        )
        self._end_failures("commit", error)

    def _end_failures(self, call: Call, error: BrokerError) -> None:
        """Let no call fail with *error* after the end of its fault: there may have been none."""
        script = self.world.broker._state.faults._scripts[call, None]
        for left in [scripted for scripted in script if scripted.error is error]:
            script.remove(left)

    async def _commit_lost(self, fault: Fault) -> None:
        hold = self.world.broker.hold("commit", answer=True)
        await asyncio.sleep(fault.lasts_s)
        hold.release()
        await asyncio.sleep(1.0)

    async def _commit_late(self, fault: Fault) -> None:
        hold = self.world.broker.hold("commit")
        # Others are stored before it lands.
        await asyncio.sleep(max(fault.lasts_s, ANSWER_TIMEOUT_S + 1.5))
        hold.release()
        await asyncio.sleep(1.0)

    async def _slow_answer(self, fault: Fault) -> None:
        call = self._pick(
            fault, ["committed", "beginning_offsets", "end_offsets", "topics", "start", "check"]
        )
        hold = self.world.broker.hold(call, answer=fault.times > 1)
        await asyncio.sleep(min(fault.lasts_s, 3.0))
        hold.release()

    async def _call_fails(self, fault: Fault) -> None:
        call = self._pick(
            fault, ["committed", "beginning_offsets", "end_offsets", "topics", "start", "poll"]
        )
        error = TransientBrokerError("injected")
        self.world.broker.fail_next(call, error, fault.times)
        await asyncio.sleep(1.0)
        self._end_failures(call, error)

    async def _broker_down(self, fault: Fault) -> None:
        self.world.broker.down = True
        await asyncio.sleep(fault.lasts_s)
        self.world.broker.down = False
        await asyncio.sleep(1.0)

    async def _send_fails(self, fault: Fault) -> None:
        self.world.broker.fail_next(
            "send", TransientBrokerError("injected"), 3 * fault.times, stored=fault.pick < 0.3
        )

    async def _more_partitions(self, fault: Fault) -> None:
        if self.world.partitions < 8:
            self.world.note("appeared", tp=(TOPIC, self.world.partitions))
            self.world.partitions += 1
            self.world.broker.create_topic(TOPIC, self.world.partitions)

    async def _compaction(self, fault: Fault) -> None:
        tp = TopicPartition(TOPIC, int(fault.pick * self.world.scenario.partitions))
        gone = [record.offset for record in self.world.broker.log(tp)][:: 2 + fault.times]
        for offset in gone:
            self.world.note("compacted", tp=tp, offset=offset)
        self.world.broker.compact(tp, gone)

    async def _retention_all(self, fault: Fault) -> None:
        """Of a partition but the last record is left."""
        self.world.bite("all lost")
        await self._retention(fault, keeps=1)

    async def _retention(self, fault: Fault, keeps: int = 0) -> None:
        tp = TopicPartition(TOPIC, int(fault.pick * self.world.scenario.partitions))
        records = self.world.broker.log(tp)
        if not records:
            return
        before = records[-keeps if keeps else len(records) // 2].offset
        for record in records:
            if record.offset < before:
                self.world.note("compacted", tp=tp, offset=record.offset, note="retention")
        self.world.note("trimmed", tp=tp, offset=before)
        self.world.broker.delete_records(tp, before)

    # -- the group

    async def _rebalance(self, fault: Fault) -> None:
        self.world.broker.rebalance(GROUP)

    async def _expire(self, fault: Fault) -> None:
        member = self._pick(fault, sorted(self.world.broker.members(GROUP)))
        if member is not None:
            self.world.bite(f"expired {self.world.scenario.membership}")
            self.world.broker.expire(GROUP, member, notice_after_s=fault.lasts_s)
            await asyncio.sleep(fault.lasts_s)

    async def _crash(self, fault: Fault) -> None:
        member = self._member(fault)
        if member is not None:
            await self._crash_of(member, fault)

    async def _crash_of(self, member: Member, fault: Fault) -> None:
        if member.is_dead or member.is_leaving:
            return
        member.note("member", note="crash")
        if member.spark is not None:
            member.spark.kill()
        member.is_leaving = member.is_dead = member.seam.is_cut = True
        self.world.members.remove(member)
        ids = [one for consumer in member.seam.consumers if (one := consumer.member_id) is not None]
        # The session.
        await asyncio.sleep(fault.lasts_s)
        for group in (GROUP, DELAYED_GROUP):
            for id in ids:
                if id in self.world.broker.members(group):
                    self.world.broker.expire(group, id, notice_after_s=3600.0)
        await self.world.join()
        await member.app.stop(drain=False)
        for job in tuple(member.jobs):
            job.cancel()
        await asyncio.gather(*member.jobs, return_exceptions=True)

    async def _join(self, fault: Fault) -> None:
        if len(self.world.members) < 4:
            await self.world.join()

    async def _leave(self, fault: Fault) -> None:
        member = self._member(fault)
        if member is not None:
            await self.world.leave(member)

    async def _stop_start(self, fault: Fault) -> None:
        """A channel is stopped by hand, and started again; twice at once, where the fault says
        so.
        """
        member = self._member(fault)
        if member is None or member.is_dead:
            return
        # The start has to come last: one that is refused is not repeated.
        async with asyncio.TaskGroup() as stops:
            for number in range(fault.times):
                if number:
                    self.world.bite("stopped again")
                stops.create_task(self._asked(member.stop_channel()))
        self.world.bite("stopped")
        await asyncio.sleep(fault.lasts_s)
        await self._asked(member.start_channel())

    # -- Spark

    async def _driver_dies(self, fault: Fault) -> None:
        member = self._member(fault)
        if member is not None and member.spark is not None:
            member.spark.lose_driver()

    async def _executors_away(self, fault: Fault) -> None:
        away = [member.spark for member in self.world.members if member.spark is not None]
        for engine in away:
            engine.away(True, raises=fault.pick < 0.5)
        await asyncio.sleep(fault.lasts_s)
        for engine in away:
            engine.away(False, raises=False)

    async def _crash_after_write(self, fault: Fault) -> None:
        """A process is killed at the moment when a job of its has written, and nobody has heard of
        that yet.
        """
        written: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        self.world.next_write = written
        try:
            async with asyncio.timeout(self.world.scenario.lasts_s):
                member = await written
        except TimeoutError:
            return
        finally:
            self.world.next_write = None
        self.world.bite("crashed after a write")
        await self._crash_of(member, fault)

    # -- the store

    @property
    def _database(self) -> Database:
        # For the type checker.
        assert self.world.database is not None
        return self.world.database

    async def _store_away(self, fault: Fault) -> None:
        self._database.away = True
        await asyncio.sleep(fault.lasts_s)
        self._database.away = False
        await asyncio.sleep(AFTER_STORE_S)

    async def _store_slow(self, fault: Fault) -> None:
        self._database.slow_s = fault.pick * 1.5 * STORE_TIMEOUT_S
        await asyncio.sleep(fault.lasts_s)
        self._database.slow_s = 0.0
        await asyncio.sleep(AFTER_STORE_S)

    async def _store_lost(self, fault: Fault) -> None:
        self._database.lost += fault.times
        await asyncio.sleep(
            fault.lasts_s + fault.times * float(self.world.scenario.settings["commit_interval"])
        )
        self._database.lost = 0
        await asyncio.sleep(AFTER_STORE_S)

    async def _store_twice(self, fault: Fault) -> None:
        self._database.twice += fault.times
        await asyncio.sleep(fault.lasts_s + LATE_S)

    async def _store_late(self, fault: Fault) -> None:
        self._database.hold()
        await asyncio.sleep(fault.lasts_s)
        self._database.release()
        await asyncio.sleep(AFTER_STORE_S)

    async def _store_zombie(self, fault: Fault) -> None:
        """What an application writes stays on its way while others take its partitions; then it
        lands.
        """
        member = self._member(fault)
        if member is None:
            return
        self._database.hold(member.who)
        for id in [
            one for consumer in member.seam.consumers if (one := consumer.member_id) is not None
        ]:
            if id in self.world.broker.members(GROUP):
                self.world.broker.expire(GROUP, id, notice_after_s=fault.lasts_s)
        await asyncio.sleep(fault.lasts_s + 1.0)
        self._database.release(member.who)
        await asyncio.sleep(AFTER_STORE_S)

    # -- what the application does with its offsets

    async def _say(self, fault: Fault) -> None:
        if (found := self._partition(fault)) is not None:
            member, partition = found
            member.offsets.say(partition)

    async def _seek(self, fault: Fault) -> None:
        if (found := self._partition(fault)) is not None:
            await self._sought(*found, fault)

    async def _sought(self, member: Member, partition: TopicPartition, fault: Fault) -> None:
        offset = int(fault.pick * 7919) % (self.world.broker.end(partition) + 1)
        before = len(self.world.events)
        self.world.skip(member, partition, offset, before)
        await self._asked(member.app.channel(TOPIC).seek(partition, offset))
        self.world.skip(member, partition, offset, before)

    async def _pause(self, fault: Fault) -> None:
        if (found := self._partition(fault)) is not None:
            await self._paused(found[0], fault, "simulation", None)

    async def _pause_some(self, fault: Fault) -> None:
        if (found := self._partition(fault)) is not None:
            await self._paused(found[0], fault, "one of them", found[1])

    async def _pause_seek(self, fault: Fault) -> None:
        """A partition goes on from somewhere else while it is paused."""
        if (found := self._partition(fault)) is not None:
            await self._paused(found[0], fault, "one of them", found[1], seeks=True)

    async def _paused(
        self,
        member: Member,
        fault: Fault,
        reason: str,
        partition: TopicPartition | None,
        *,
        seeks: bool = False,
    ) -> None:
        channel, tp = member.app.channel(TOPIC), WHOLE if partition is None else partition
        some = {} if partition is None else {"partitions": [partition]}
        channel.pause(reason=reason, **some)
        member.note("paused", tp=tp, note=reason)
        if seeks and partition is not None:
            await self._sought(member, partition, fault)
        await asyncio.sleep(fault.lasts_s)
        member.note("resumed", tp=tp, note=reason)
        channel.resume(reason=reason, **some)

    async def _commit_now(self, fault: Fault) -> None:
        if (found := self._partition(fault)) is not None:
            await self._asked(found[0].app.channel(TOPIC).commit())

    async def _commit_at(self, fault: Fault) -> None:
        if (found := self._partition(fault)) is not None:
            member, partition = found
            offset = int(fault.pick * 7919) % (self.world.broker.end(partition) + 2)
            await self._asked(member.app.channel(TOPIC).commit({partition: offset}))

    def _partition(self, fault: Fault) -> tuple[Member, TopicPartition] | None:
        """One of the partitions that an application has; None: there is none."""
        staying = [member for member in self.world.members if not member.is_leaving]
        owned = [
            (member, partition)
            for member in staying
            for channel in member.app.facts().channels
            if channel.channel == TOPIC and channel.state in ("running", "paused")
            for partition in sorted(member.app.channel(TOPIC).assignment)
        ]
        picked: tuple[Member, TopicPartition] | None = self._pick(fault, owned)
        return picked

    async def _asked(self, call: Awaitable[object]) -> None:
        """It may be refused, and then nothing has changed."""
        try:
            await call
        except (CommitRefusedError, BrokerError, ChannelClosedError) as error:
            self.world.bite(f"asked {type(error).__name__}")

    # -- time

    async def _stall(self, fault: Fault) -> None:
        self.world.clock.advance(fault.lasts_s)
        await asyncio.sleep(1.0)

    async def _wall_jump(self, fault: Fault) -> None:
        self.world.clock.jump_wall((fault.pick - 0.5) * 7200.0)
