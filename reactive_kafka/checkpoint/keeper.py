"""What one life of a channel has in its checkpoint store: whose rows they are, how positions and states get there."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar

from reactive_kafka.checkpoint.claim import Claim, Sending
from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.commit.beside import Due
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import CheckpointError, CheckpointRefusedError, StoreAwayError, TransientBrokerError
from reactive_kafka.incoming.message import Message, MessageCheckpoint
from reactive_kafka.observe.events import CheckpointFenced, Observer, StateDropped
from reactive_kafka.records import Committed, TopicPartition

T = TypeVar("T")

ATTEMPTS = 5
"""How often a row of ours is read again and written, when requests of ours with lost answers have changed it."""

FENCED_S, MAX_FENCED_S = 1.0, 30.0
"""How soon a partition that another owner has taken over is claimed again, where it is still assigned to us."""


class Host(Protocol):
    """What a keeper needs from its channel."""

    def fenced(self, partition: TopicPartition) -> None:
        """Another owner has the row: close the tracker, forget what waits, and begin anew if the partition is ours."""

    def give_up(self, partition: TopicPartition) -> None:
        """Somebody else may have had the row since: what waits to know whether it came straight back did not."""

    def due(self, tracker: OffsetTracker, position: int) -> Due:
        """What a transaction is to store for a position, in place of a commit."""

    def stored(self, due: Due) -> None:
        """A transaction has stored it."""

    def carrying_out(self, tracker: OffsetTracker, until: int) -> list[Future[bool]]:
        """What nacks come to that are being carried out, of records up to the one with this arrival number."""

    def is_ours(self, tracker: OffsetTracker) -> bool:
        """Whether the partition of a tracker is ours, and is not being let go."""

    def duplicates_dropped(self, records: int) -> None:
        """Count records that the store had already."""


class Keeper:
    """The rows of one channel's partitions, of all of its clients.

    Attributes:
        store: Where they are.
        group: What they stand under: the group's name, or without one the channel's.
        away: Why the store could not be used the last time; None: it could.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        store: CheckpointStore,
        codec: Codec,
        host: Host,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self.store = store
        self.group = settings.group_id or settings.name
        self.channel = settings.name
        self.clock = clock
        self.observer = observer
        self.host = host
        self.codec = codec
        self.away: str | None = None
        self._settings = settings
        self._unsynced_max_age_s = settings.checkpoint.unsynced_max_age_s if settings.checkpoint is not None else 0.0
        self._claims: dict[TopicPartition, Claim] = {}
        self._fenced: dict[TopicPartition, tuple[float, float]] = {}  # when to claim it again, and the wait after that

    # -- whose it is

    def claim(self, partition: TopicPartition) -> Claim | None:
        """What is known of a partition that is ours, or was until lately."""
        return self._claims.get(partition)

    def claimed(self, partition: TopicPartition, owner: str, row: Checkpoint) -> None:
        """A client has taken a row over."""
        self.host.give_up(partition)
        self._claims[partition] = Claim(partition, owner, row)

    def begin(self, tracker: OffsetTracker) -> None:
        """Reading begins, or goes on from somewhere else: the tracker is the partition's from here on."""
        claim = self._claims.get(tracker.partition)
        if claim is not None and claim.begin(tracker) and claim.row.position is not None:
            self.observer.on(
                StateDropped(
                    channel=self.channel,
                    partition=tracker.partition,
                    from_offset=claim.row.position,
                    to_offset=tracker.start,
                )
            )

    def fence(self, claim: Claim, row: Checkpoint | None) -> None:
        """Another owner has taken a row over: nothing more of the partition counts."""
        if self._claims.get(claim.partition) is claim:
            del self._claims[claim.partition]
            now = self.clock.monotonic()
            _, wait_s = self._fenced.get(claim.partition, (now, FENCED_S))
            self._fenced[claim.partition] = (now + wait_s, min(2 * wait_s, MAX_FENCED_S))
            self.host.fenced(claim.partition)
        found = None if row is None else row.token
        self.observer.on(
            CheckpointFenced(channel=self.channel, partition=claim.partition, token=claim.row.token, found=found)
        )

    def fenced_for(self, partition: TopicPartition) -> float | None:
        """How long a partition is not to be claimed that another owner has taken over; None: nobody has."""
        if partition not in self._fenced:
            return None
        return max(0.0, self._fenced[partition][0] - self.clock.monotonic())

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These are ours by a new assignment: who had taken them over before does not matter any more."""
        for partition in partitions:
            self._fenced.pop(partition, None)

    # -- what is stored

    async def ask(self, call: Awaitable[T]) -> T:
        """Make a call of the store's, and note whether it is there.

        Raises:
            StoreAwayError: It is not.
        """
        try:
            answer = await call
        except StoreAwayError as error:
            self.away = str(error) or "it does not answer"
            raise
        self.away = None
        return answer

    async def read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Checkpoint]:
        """partition -> its row as it is now."""
        return await self.ask(self.store.read(self.group, partitions))

    async def write(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Store positions with their states; those of partitions that another owner has by now are given up.

        Raises:
            StoreAwayError: It may have been stored.
            CheckpointRefusedError: Another owner has all of them.
            TransientBrokerError: Rows of ours change all the time.
        """
        wanted = {self._claims[partition]: at for partition, at in offsets.items() if partition in self._claims}
        trackers = {claim: claim.tracker for claim in wanted}
        async with AsyncExitStack() as locks:
            for claim in sorted(wanted, key=lambda one: one.partition):
                await locks.enter_async_context(claim.lock)
            fenced = await self._write(wanted, trackers)
        if fenced and len(fenced) == len(offsets):
            raise CheckpointRefusedError(f"another owner has {', '.join(map(str, sorted(fenced)))}")

    async def _write(
        self, wanted: Mapping[Claim, Committed], trackers: Mapping[Claim, OffsetTracker | None]
    ) -> set[TopicPartition]:
        """Those that another owner has. What a seek has left while this waited is none of the partition's any more."""
        unsure = [claim for claim in wanted if claim.is_unsure]
        ours = await self.look_again(unsure) if unsure else []
        fenced = {claim.partition for claim in unsure if claim not in ours}
        for _ in range(ATTEMPTS):
            sending = {
                claim: claim.write(at)
                for claim, at in wanted.items()
                if self._claims.get(claim.partition) is claim and claim.tracker is trackers[claim] and claim.is_due(at)
            }
            if not sending:
                return fenced
            refused = await self._send(sending)
            if not refused:
                return fenced
            ours = await self.look_again(refused)
            fenced.update(claim.partition for claim in refused if claim not in ours)
            wanted = {claim: wanted[claim] for claim in ours}
        raise TransientBrokerError(f"the rows of {', '.join(str(claim.partition) for claim in wanted)} keep changing")

    async def _send(self, sending: Mapping[Claim, Sending]) -> list[Claim]:
        """Those that were refused."""
        for claim, one in sending.items():
            claim.sent(one)
        writes = {claim.partition: one.write for claim, one in sending.items()}
        refused = await self.ask(self.store.write(self.group, writes))
        for claim, one in sending.items():
            if claim.partition not in refused:
                claim.confirmed(one)
                self._fenced.pop(claim.partition, None)
        return [claim for claim in sending if claim.partition in refused]

    async def look_again(self, every: Collection[Claim]) -> list[Claim]:
        """Read rows of which it is not known what became of them; those that are still ours. The others are fenced."""
        rows = await self.read([claim.partition for claim in every])
        ours = []
        for claim in every:
            row = rows.get(claim.partition)
            if row is not None and claim.is_ours(row):
                claim.found(row)
                ours.append(claim)
            else:
                self.fence(claim, row)
        return ours

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """partition -> what the store is known to have, of those that are ours."""
        found = ((partition, self._claims.get(partition)) for partition in partitions)
        return {
            partition: Committed(claim.row.position, claim.row.metadata)
            for partition, claim in found
            if claim is not None and claim.row.position is not None
        }

    # -- how far it is behind

    def held(self, trackers: Mapping[TopicPartition, OffsetTracker]) -> dict[TopicPartition, int]:
        """partition -> records that take room: while the store is away also settled ones that it has not got."""
        self.look()
        if self.away is None:
            return {partition: tracker.unsettled for partition, tracker in trackers.items()}
        return {
            partition: max(tracker.unsettled, tracker.position - max(tracker.start, tracker.uncommitted_from))
            for partition, tracker in trackers.items()
        }

    def look(self) -> float | None:
        """How long something has been settled that the store has not got; None: nothing is. Asked now and then."""
        now = self.clock.monotonic()
        found = [since for claim in self._claims.values() if (since := claim.look(now)) is not None]
        return now - min(found) if found else None

    def not_ready(self) -> list[str]:
        """What keeps positions from being stored."""
        is_needed = any(claim.tracker is not None and not claim.tracker.is_closed for claim in self._claims.values())
        reasons = [f"the checkpoint store is away: {self.away}"] if self.away is not None and is_needed else []
        now, most_s = self.clock.monotonic(), self._unsynced_max_age_s
        for claim in self._claims.values():
            since = claim.look(now)
            if most_s and since is not None and now - since > most_s:
                stored = "nothing" if claim.row.position is None else f"position {claim.row.position}"
                reasons.append(
                    f"{claim.partition}: settled records are not stored for {now - since:.0f} s "
                    f"(unsynced_max_age is {most_s:g} s); the store has {stored}"
                )
        return reasons

    def is_in_transaction(self, partition: TopicPartition) -> bool:
        """Whether the position of a partition is to come with a transaction that is open."""
        claim = self._claims.get(partition)
        return claim is not None and claim.transaction is not None and claim.transaction is claim.tracker

    # -- states

    def has_stored(self, message: Message[Any]) -> bool:
        """Whether an earlier transaction has stored a record, as far as is known."""
        claim = self._claim_of(message)
        return claim is not None and claim.has_stored(message.offset)

    def begin_call(self, messages: Sequence[Message[Any]]) -> None:
        """A handler is called with these messages, once or once more."""
        offsets: dict[OffsetTracker, list[int]] = {}
        for message in messages:
            offsets.setdefault(message._tracker, []).append(message.offset)
        for tracker, its in offsets.items():
            claim = self._claims.get(tracker.partition)
            if claim is None or claim.tracker is not tracker:
                continue
            if len(its) == 1:
                claim.states.begin(its)
            else:
                claim.states.begin_batch(its)

    def nacked(self, tracker: OffsetTracker, offset: int) -> None:
        """A record has set nothing."""
        claim = self._claims.get(tracker.partition)
        if claim is not None and claim.tracker is tracker:
            claim.states.drop(offset)

    def checkpoint(self, message: Message[Any], on_loop: OnLoop) -> MessageCheckpoint:
        """The state as it is for a message.

        Raises:
            CheckpointError: The channel's settings leave no state, or the record comes from a retry topic.
        """
        self._check_order()
        if message._tracker.partition not in self._claims and not message._tracker.is_closed:
            raise CheckpointError(
                f"channel {self.channel!r}: {message.topic_partition} is none of its partitions in the checkpoint "
                "store: records of retry topics have no state"
            )
        return _StateOf(self, message, on_loop)

    def _check_order(self) -> None:
        settings = self._settings
        if settings.ordering != "partition":
            raise CheckpointError(
                f"channel {self.channel!r}: a state follows the records of a partition one after the other: "
                f'it needs ordering = "partition", not "{settings.ordering}"'
            )
        if settings.keep_out_of_order_acks:
            raise CheckpointError(
                f"channel {self.channel!r}: with keep_out_of_order_acks the states of claim acks would be lost"
            )

    def text_for(self, message: Message[Any]) -> str | None:
        """The encoded state that a message sees.

        Raises:
            CheckpointRefusedError: Its partition is gone.
        """
        claim = self._claim_of(message)
        if claim is None:
            raise CheckpointRefusedError(f"{message!r}: its partition is not ours any more, nor is its state")
        return claim.states.get(message.offset, message._tracker.is_open)

    def set_text(self, message: Message[Any], text: str | None) -> None:
        """Note what a message sets.

        Raises:
            CheckpointError: It has its verdict.
            CheckpointRefusedError: Its partition is gone.
        """
        claim = self._claim_of(message)
        if claim is None:
            raise CheckpointRefusedError(f"{message!r}: its partition is not ours any more, nor is its state")
        if not message._tracker.is_open(message._index):
            raise CheckpointError(f"{message!r} has its verdict: it sets no state any more")
        claim.states.set(message.offset, message._index, text)

    def _claim_of(self, message: Message[Any]) -> Claim | None:
        claim = self._claims.get(message._tracker.partition)
        return claim if claim is not None and claim.tracker is message._tracker else None


OnLoop = Callable[[Callable[[], Any]], Any]
"""Makes a call on the event loop and returns its answer, from whatever thread."""


class _StateOf:
    """See :class:`~reactive_kafka.incoming.message.MessageCheckpoint`."""

    __slots__ = ("_keeper", "_message", "_on_loop")

    def __init__(self, keeper: Keeper, message: Message[Any], on_loop: OnLoop) -> None:
        self._keeper = keeper
        self._message = message
        self._on_loop = on_loop

    def get(self) -> Any:
        """The state that the message sees."""
        text = self._on_loop(lambda: self._keeper.text_for(self._message))
        return None if text is None else self._keeper.codec.decode(text)

    def set(self, state: Any) -> None:
        """Set it, with the message's ack."""
        text = None if state is None else self._keeper.codec.encode(state)
        self._on_loop(lambda: self._keeper.set_text(self._message, text))
