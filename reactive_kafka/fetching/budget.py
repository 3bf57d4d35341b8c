"""How many records each partition may bring next. No I/O, no clock.

Half of ``max_in_flight`` is divided among the partitions and is theirs alone; the other half is for
the partitions that need it first. So one busy partition gets more than half of the channel, and a
stuck one leaves every other its own part. If there are so many partitions that their parts are
crumbs, they take turns: each poll brings pieces of some of them, out of the shared half.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import NamedTuple

from reactive_kafka.broker.client import ByteRoom
from reactive_kafka.records import TopicPartition

MAX_WINDOW_RECORDS = 1_000_000
"""The longest window of one partition (unsettled records, and settled ones behind the first of
them), at nine bytes a record. Beyond it the partition waits for its oldest record, so that memory
stays bounded behind a record that stays unsettled for a long time."""


def budgets(
    unsettled: Mapping[TopicPartition, int], max_in_flight: int
) -> dict[TopicPartition, int]:
    """partition -> how many more records it may bring, if it may bring any.

    All of them together stay within *max_in_flight*. With more partitions than half of it, each may
    still have one record, so that none waits for ever.

    Args:
        unsettled: partition -> its records that were delivered and are not settled.
    """
    count = len(unsettled)
    if not count:
        return {}
    own = max_in_flight if count == 1 else max(1, max_in_flight // (2 * count))
    taken_of_shared = sum(max(0, held - own) for held in unsettled.values())
    shared = max_in_flight - own * count - taken_of_shared
    extra = max(0, shared) // count
    allowed = {partition: max(0, own - held) + extra for partition, held in unsettled.items()}
    return {partition: records for partition, records in allowed.items() if records > 0}


PIECE = 512
"""Most records that a poll brings of one partition where partitions take turns, but for batches.
The cost of a poll, of a chunk and of a worker that changes lanes is small for so many records."""

TURN_S = 0.001
ROUND_S = 0.1
"""A turn is the number of records that are handled in TURN_S: so each of 1,000 partitions has a
turn a second. With fewer partitions turns are longer, so that all of them take ROUND_S: a poll
costs the same for few records."""

LOOK_S = 0.02
"""How soon a poll also asks for partitions that hold nothing, while workers have enough to do. So a
new record of a quiet partition does not wait for the backlogs of others."""

LOOK_AT = 200
LONGEST_LOOK_S = 0.5
"""Up to LOOK_AT partitions that hold something are looked at every LOOK_S. A look at more takes
longer (1,000 take 2 ms), so it comes later, but never later than LONGEST_LOOK_S."""


def look_s(holding: int) -> float:
    """How soon partitions are looked at again, given how many of them hold something."""
    return min(LONGEST_LOOK_S, LOOK_S * max(1.0, holding / LOOK_AT))


WAITING = 8
WAITING_S = 0.25
"""How many records wait at most for the one worker that is in a partition: WAITING, or as many as
it handles in WAITING_S. More would only take the room of partitions that other workers could be
in."""

CRUMBS = 8
"""If less than this is left to share, each partition brings one record of its own part instead."""

FEW = 4
FEW_SHARED = 16
ROOMY = 128
"""Up to FEW partitions need not take turns if they have two records each. With more workers than
partitions it is FEW_SHARED: turns leave most lanes empty, and a worker that has to leave one costs
as much as the crumbs. Nor need any number of partitions that have ROOMY records each."""


def take_turns(
    partitions: int, max_in_flight: int, *, batch: int = 0, concurrency: int = 1
) -> bool:
    """Whether partitions take turns, because the window divided among them would be crumbs.

    They also do if a partition's own part, half of the window divided among them, does not hold a
    *batch*, the records that a call waits for. But taking turns leaves some of the window free for
    partitions that come next, so a batch of nearly all of it would never fill: then they do not.
    """
    if max_in_flight < 2 * partitions:
        return True
    if batch > max_in_flight - max_in_flight // 16:
        return False
    if partitions > 1 and max_in_flight < 2 * partitions * batch:
        return True
    return (
        partitions > (FEW if concurrency <= partitions else FEW_SHARED)
        and max_in_flight < ROOMY * partitions
    )


def window(max_in_flight: int, partitions: int, *, is_set: bool) -> int:
    """How many records may be in flight where partitions take turns.

    Args:
        is_set: ``max_in_flight`` is configured: then nothing is added to it.
    """
    if is_set:
        return max_in_flight
    # One more for each partition.
    return partitions + max(partitions, max_in_flight)


class PollRequest(NamedTuple):
    """What a poll may bring."""

    # partition -> most records of it.
    budgets: Mapping[TopicPartition, int]
    # Most records of all partitions together; None: the sum of the budgets.
    most: int | None = None
    # Partitions without room: they are polled again when there is some.
    left_out: Collection[TopicPartition] = ()
    # When to plan the next poll even if nothing wakes this one; None: this poll may wait longer.
    again_s: float | None = None
    # How many bytes the records may have. None: any number.
    byte_room: ByteRoom | None = None


EMPTY_POLL = PollRequest({})


class Turn(NamedTuple):
    """What one poll may bring where partitions take turns."""

    # Most records of a partition that holds none.
    each: int
    # partition -> most records of it, if it holds some and has room.
    held: Mapping[TopicPartition, int]
    # Most records of all partitions together.
    most: int


class Pace:
    """Measures how many records of a partition are one turn.

    Few if handlers are slow, or the other partitions would wait long.
    """

    def __init__(self) -> None:
        self.piece = 1
        self._since = -inf
        self._done = 0
        # Records settled a second, over the last one or two tenths of a second.
        self._rate = 0.0
        # When the last two tenths of a second began, and how many records were settled by then.
        self._marks = ((-inf, 0), (-inf, 0))

    def look(self, done: int, now: float, partitions: int) -> int:
        """The records of one turn, given how many have been settled in all (*done*) at *now*."""
        self._look_at_rate(done, now)
        if now - self._since >= TURN_S and done != self._done:
            turn_s = max(TURN_S, ROUND_S / partitions)
            piece = max(1, min(PIECE, round((done - self._done) * turn_s / (now - self._since))))
            # Small changes are not followed: while the piece stays, the shares of a poll stay.
            if abs(piece - self.piece) * 4 > self.piece:
                self.piece = piece
            self._since = now
            self._done = done
        return self.piece

    def _look_at_rate(self, done: int, now: float) -> None:
        (since, done_then), last = self._marks
        if now - last[0] >= ROUND_S:
            since, done_then = last
            # After a long time without a poll the speed of before means nothing: measure again.
            is_recent = now - since < 2 * ROUND_S
            self._marks = last if is_recent else (now, done), (now, done)
        if now - since >= TURN_S:
            self._rate = (done - done_then) / (now - since)

    def most_waiting(self, workers: int) -> int:
        """How many records may wait for the one worker in a partition.

        Args:
            workers: The number of workers, each in a partition of its own.
        """
        return max(WAITING, round(self._rate * WAITING_S / max(1, workers)))


def turn(
    held: Mapping[TopicPartition, int],
    partitions: int,
    max_in_flight: int,
    *,
    piece: int = PIECE,
    spread: int = 1,
    is_urgent: bool = True,
    waiting: Mapping[TopicPartition, int] | None = None,
    most_waiting: int = 0,
) -> Turn:
    """How many more records may come, given what each partition has received and not settled.

    One record a partition, or half of the window if that is less, is kept for partitions that hold
    nothing. The rest is shared: a poll brings pieces of the partitions whose turn it is, and no
    partition holds more than twice what it leaves to the others. So a lone busy one gets two
    thirds, and stuck ones leave something until they are very many; then the others continue with
    a record each.

    Several workers need records of several partitions. There a partition gets more if no more of it
    waits than half of an equal share, or than half of a piece if that is more and leaves room for
    two pieces for each busy worker. *most_waiting* bounds both.

    More than *max_in_flight* is never in flight, though with less than two records a partition all
    of it can be held by stuck ones.

    Args:
        held: partition -> its records waiting or in flight, where there are any.
        piece: Records of one turn.
        spread: How many partitions the records are to come from, at least: the number of busy
            workers that take one each.
        is_urgent: Workers have run dry, or nothing has been asked for in a while.
        waiting: For several workers: partition -> its held records that no worker has.
        most_waiting: For several workers: how many records of a partition may wait.
    """
    # These are the thresholds of shared-memory switches: a partition that holds much is bounded by
    # what is left, so nothing has to find out which one is stuck. Dividing the window instead would
    # leave crumbs: among 1,000 partitions a window of 1,000 brings single records, and a poll for
    # those costs ten times as much a record.
    kept = min(partitions, max_in_flight // 2)
    to_share = max_in_flight - kept
    total = sum(held.values())
    shared = to_share - (total - len(held)) - max(0, len(held) - kept)
    # A poll is worth its cost if an eighth of the window can come.
    if not is_urgent and shared < max_in_flight // 8:
        return Turn(0, {}, 0)
    if shared <= min(CRUMBS, to_share // 4):
        if kept == partitions:
            return Turn(1, {}, partitions - len(held))
        return Turn(1, {}, max(0, max_in_flight - total))
    if waiting is None:
        piece = max(1, min(piece, to_share // (2 * spread)))
        more = {
            partition: min(piece, (2 * shared - count + 1) // 3)
            for partition, count in held.items()
        }
    else:
        # By larger pieces the partitions that come first would have all of the window, and most
        # workers nothing. Idle workers do not count: fast handlers are all run by one of 1,000
        # workers, which would get crumbs. Records that do not wait (handled, retried, not acked,
        # not stored) keep no partition back.
        with_work = sum(1 for count in waiting.values() if count)
        equal = (kept == partitions) + to_share // max(spread, with_work)
        piece = max(2, min(most_waiting, max(min(piece, to_share // (2 * spread)), equal)))
        more = {
            partition: min(piece - count, (2 * shared - held[partition] + 1) // 3)
            for partition, count in waiting.items()
            if count <= piece // 2
        }
    each = max(1, min(piece, 2 * shared // 3))
    with_room = {partition: records for partition, records in more.items() if records > 0}
    return Turn(each, with_room, shared)


class Room:
    """What is known of the room since the last look, so that no look is made that finds little."""

    def __init__(self) -> None:
        # When to look again, whatever workers have done.
        self.until = -inf
        # With this number of records in all, the room is taken.
        self._taken_with = inf
        # It is time to look when no more lanes than this have work.
        self.enough = 0

    def taken(self, brought: int, until: float, *, enough: int) -> None:
        """There is no room once *brought* records have come in all; look again at *until*.

        Args:
            enough: Workers have enough to do while more lanes than this have work.
        """
        self._taken_with = brought
        self.until = until
        self.enough = enough

    def look_again(self) -> None:
        """Forget what is known: look at the next poll."""
        self.until = -inf

    def is_early(self, ready: int, now: float) -> bool:
        """Whether it is too early to look: *ready* lanes have work for workers."""
        return ready > self.enough and now < self.until

    def is_taken(self, brought: int) -> bool:
        """Whether there was no room at the last look, or all records came that it was for."""
        return brought >= self._taken_with


class Shares(dict[TopicPartition, int]):
    """partition -> most records that a poll may bring of it.

    It is the same number for nearly all partitions, and from poll to poll. So one dict is kept and
    changed: a new one for 1,000 partitions would cost more than all other decisions about a poll.
    """

    def __init__(self) -> None:
        super().__init__()
        self._names: tuple[TopicPartition, ...] = ()
        self._each = 0
        self._changed: Collection[TopicPartition] = ()

    def reset(self, names: tuple[TopicPartition, ...], each: int) -> None:
        """*each* records of each of these, and of no other partition."""
        if names is self._names and each == self._each:
            self.update(dict.fromkeys(self._changed, each))
        else:
            self.clear()
            self.update(dict.fromkeys(names, each))
            self._names = names
            self._each = each
        self._changed = ()

    def changed(self, partitions: Collection[TopicPartition]) -> None:
        """Only these have another number than :meth:`reset` has given them, or none."""
        self._changed = partitions


READ_AHEAD = 10
"""With ``ordering = "key"``: how many times ``max_in_flight`` may be read while workers have
nothing to do, because all that was read waits behind busy keys. So one hot key, or one that is
retried, starves no other."""


def read_ahead(unsettled: Mapping[TopicPartition, int], max_in_flight: int) -> int:
    """How many more records each partition may bring in search of other keys.

    Args:
        unsettled: partition -> its records that were delivered and are not settled.
    """
    room = READ_AHEAD * max_in_flight - sum(unsettled.values())
    return max(0, min(max_in_flight, room // max(1, len(unsettled))))
