"""How many records each partition may bring next: back-pressure that no partition can turn against
another.

Half of ``max_in_flight`` is divided among the partitions and is theirs alone; the other half is for
whoever needs it first. So one busy partition gets more than half of the channel, and a stuck one
leaves every other its own part. Where there are so many partitions that their parts are crumbs,
they take turns: each poll brings pieces of some of them, out of the shared half. One without room
for a while is paused at the client. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import NamedTuple

from reactive_kafka.partitions.partition import Partition
from reactive_kafka.records import TopicPartition

MAX_WINDOW_RECORDS = 1_000_000
"""Longest window of one partition (unsettled records, and settled ones behind the first of them),
at nine bytes a record. Beyond it the partition waits for its oldest record, so that memory stays
bounded behind a straggler."""


def budgets(
    unsettled: Mapping[TopicPartition, int], max_in_flight: int
) -> dict[TopicPartition, int]:
    """partition -> how many more records it may bring, where it may, given what each has received
    and not settled.

    All of them together keep *max_in_flight*. With more partitions than half of it, each may still
    have one record, so that none stands still.
    """
    count = len(unsettled)
    if not count:
        return {}
    own = max_in_flight if count == 1 else max(1, max_in_flight // (2 * count))
    shared = max_in_flight - own * count - sum(max(0, held - own) for held in unsettled.values())
    extra = max(0, shared) // count
    allowed = {partition: max(0, own - held) + extra for partition, held in unsettled.items()}
    return {partition: records for partition, records in allowed.items() if records > 0}


PIECE = 512
"""Most records that a poll brings of one partition where partitions take turns, but for batches.
What a poll, a chunk and a worker's coming and going cost is little beside those of so many
records."""

TURN_S = 0.001
ROUND_S = 0.1
"""How long the records of one turn take, as those before them went: so each of 1,000 partitions has
one a second. It is longer where there are so few partitions that each has one in a tenth of a
second all the same: a poll for less than it could bring is paid for by fewer records."""

LOOK_S = 0.02
"""How soon a poll asks for those that hold nothing, too, while workers have enough to do: what is
new in a quiet partition does not wait for the backlogs of others."""

LOOK_AT = 200
LONGEST_LOOK_S = 0.5
"""So many partitions that hold something are looked at as often as that. Of more a look takes
longer, and comes later, up to so late: 1,000 take 2 ms."""


def look_s(holding: int) -> float:
    """How soon partitions are looked at again, given how many of them hold something."""
    return min(LONGEST_LOOK_S, LOOK_S * max(1.0, holding / LOOK_AT))


WAITING = 8
WAITING_S = 0.25
"""What is to wait at most for the one worker that is in a partition at a time: so many records, or
as many as a worker goes through in that time. More would only take the room of partitions that
other workers could be in."""

CRUMBS = 8
"""With less than this left to share, each partition brings a record of its own part instead."""

FEW = 4
FEW_SHARED = 16
ROOMY = 128
"""So few partitions need not take turns, if they have two records each; the second, where there are
more workers than partitions: turns leave most lanes empty, and each worker that has to leave one
costs as much as the crumbs. Nor need any number of partitions that have so many records each."""


def take_turns(
    partitions: int, max_in_flight: int, *, batch: int = 0, concurrency: int = 1
) -> bool:
    """Whether partitions take turns, because the window divided among them would be crumbs.

    Or where a partition's own part, half of the window divided among them, does not hold a *batch*,
    the records that a call waits for. Taking turns leaves some of the window free for whoever comes
    next, so a batch of nearly all of it would never fill.
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
    """How many records may be in flight where partitions take turns: one more for each, if nobody
    has set it.
    """
    return max_in_flight if is_set else partitions + max(partitions, max_in_flight)


class PollRequest(NamedTuple):
    """What a poll is asked for."""

    # Partition -> most records of it.
    budgets: Mapping[TopicPartition, int]
    # Of all of them together; None: as many as their budgets are.
    most: int | None = None
    # To be polled again when there is room for them.
    left_out: Collection[TopicPartition] = ()
    # When to ask again, though nobody wakes the poll; None: it may wait as long as any.
    again_s: float | None = None


EMPTY_POLL = PollRequest({})


class Turn(NamedTuple):
    """What one poll may bring where partitions take turns."""

    # Records of a partition that holds none.
    each: int
    # Partition -> the same, for those that hold some and have room.
    held: Mapping[TopicPartition, int]
    # Records of all partitions together.
    most: int


class Pace:
    """How many records of a partition are a turn's work: few where handlers are slow, or the others
    would wait long.
    """

    def __init__(self) -> None:
        self.piece = 1
        self._since = -inf
        self._done = 0
        # Records settled a second, over the last tenth of one or two.
        self._rate = 0.0
        # The two last tenths of a second: when they began, what was done by then.
        self._marks = ((-inf, 0), (-inf, 0))

    def look(self, done: int, now: float, partitions: int) -> int:
        """The records of one turn, by the monotonic clock and how many have been settled (*done*)
        in all.
        """
        self._look_at_rate(done, now)
        if now - self._since >= TURN_S and done != self._done:
            turn_s = max(TURN_S, ROUND_S / partitions)
            piece = max(1, min(PIECE, round((done - self._done) * turn_s / (now - self._since))))
            # The shares of a poll stay while it does: see Shares.
            if abs(piece - self.piece) * 4 > self.piece:
                self.piece = piece
            self._since = now
            self._done = done
        return self.piece

    def _look_at_rate(self, done: int, now: float) -> None:
        (since, done_then), last = self._marks
        if now - last[0] >= ROUND_S:
            since, done_then = last
            # Else polls were rare, and what comes now may go faster.
            is_going_on = now - since < 2 * ROUND_S
            self._marks = last if is_going_on else (now, done), (now, done)
        if now - since >= TURN_S:
            self._rate = (done - done_then) / (now - since)

    def most_waiting(self, workers: int) -> int:
        """How many records are to wait for the one worker in a partition, where so many *workers*
        are in one each.
        """
        return max(WAITING, round(self._rate * WAITING_S / max(1, workers)))


def turn(
    # Its records waiting or in flight, for those that have any.
    held: Mapping[TopicPartition, int],
    partitions: int,
    max_in_flight: int,
    *,
    # Records of one turn.
    piece: int = PIECE,
    # How many partitions the records are to come from, at least: busy workers that take one each.
    spread: int = 1,
    # Workers have run dry, or it was long ago that anything was asked for.
    is_urgent: bool = True,
    # For several workers: of what is held, what no worker has.
    waiting: Mapping[TopicPartition, int] | None = None,
    # For several workers: of one partition.
    most_waiting: int = 0,
) -> Turn:
    """How many more records may come, given what each partition has received and not settled.

    One record a partition, or half of the window if that is less, is kept for those that hold
    nothing. The rest is shared: a poll brings pieces of whose turn it is, and no partition holds
    more than twice what it leaves to the others. So a lone busy one gets two thirds, and stuck ones
    leave something until they are very many; then the others go on with a record each. Several
    workers need records of several partitions: there whoever has no more waiting than half of an
    equal share, or of a piece if that is more and leaves room for two for each that is busy, gets
    the rest of it; *most_waiting* bounds both. More than *max_in_flight* is never in flight, though
    with less than two records a partition it can all be held by stuck ones.
    """
    # The thresholds of shared-memory switches: who holds much is bounded by what is left, so nobody
    # has to find out which partition is stuck. Dividing the window instead would leave crumbs:
    # among 1,000 partitions a window of 1,000 brings single records, and a poll for those costs ten
    # times as much a record.
    kept = min(partitions, max_in_flight // 2)
    to_share = max_in_flight - kept
    total = sum(held.values())
    shared = to_share - (total - len(held)) - max(0, len(held) - kept)
    # It is worth a poll when an eighth of the window can come.
    if not is_urgent and shared < max_in_flight // 8:
        return Turn(0, {}, 0)
    if shared <= min(CRUMBS, to_share // 4):
        return Turn(
            1, {}, partitions - len(held) if kept == partitions else max(0, max_in_flight - total)
        )
    if waiting is None:
        piece = max(1, min(piece, to_share // (2 * spread)))
        more = {
            partition: min(piece, (2 * shared - count + 1) // 3)
            for partition, count in held.items()
        }
    else:
        # By larger pieces those that come first would have all of the window, and most workers
        # nothing. Idle workers do not count: fast handlers are all run by one of 1,000 workers,
        # which would get crumbs. What a partition holds otherwise (records that are handled,
        # retried, not acked, not stored) keeps none back.
        equal = (kept == partitions) + to_share // max(
            spread, sum(1 for count in waiting.values() if count)
        )
        piece = max(2, min(most_waiting, max(min(piece, to_share // (2 * spread)), equal)))
        more = {
            partition: min(piece - count, (2 * shared - held[partition] + 1) // 3)
            for partition, count in waiting.items()
            if count <= piece // 2
        }
    each = max(1, min(piece, 2 * shared // 3))
    return Turn(each, {tp: records for tp, records in more.items() if records > 0}, shared)


class Room:
    """What is known of the room since the last look at it, so that no look is made that would find
    little.
    """

    def __init__(self) -> None:
        # The first: when it is looked at again, whatever workers have done.
        self.until = -inf
        self._taken_with = inf
        # Lanes with work: with no more of them it is time to look.
        self.enough = 0

    def taken(self, brought: int, until: float, *, enough: int) -> None:
        """There is none once so many records have come in all; little, until then, where no more
        comes.
        """
        self._taken_with = brought
        self.until = until
        self.enough = enough

    def look_again(self) -> None:
        """Nothing is known of it."""
        self.until = -inf

    def is_early(self, ready: int, now: float) -> bool:
        """Whether the next look would be too early: so many lanes are ready for workers."""
        return ready > self.enough and now < self.until

    def is_taken(self, brought: int) -> bool:
        """Whether there was none at the last look, or all came that there was room for."""
        return brought >= self._taken_with


class Shares(dict[TopicPartition, int]):
    """partition -> most records that a poll may bring of it: the same for nearly all of them, and
    from poll to poll.

    To make it anew for 1,000 partitions would cost a poll more than all else that is decided about
    it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._names: tuple[TopicPartition, ...] = ()
        self._each = 0
        self._changed: Collection[TopicPartition] = ()

    def reset(self, names: tuple[TopicPartition, ...], each: int) -> None:
        """So many records of each of these, and of no other partition."""
        if names is self._names and each == self._each:
            self.update(dict.fromkeys(self._changed, each))
        else:
            self.clear()
            self.update(dict.fromkeys(names, each))
            self._names = names
            self._each = each
        self._changed = ()

    def changed(self, partitions: Collection[TopicPartition]) -> None:
        """Of those that :meth:`reset` named, these and no other may have another number since, or
        none.
        """
        self._changed = partitions


READ_AHEAD = 10
"""With ``ordering = "key"``: how many times ``max_in_flight`` may be read while workers have
nothing to do, because all that was read waits behind keys that are busy. So one hot key, or one
that is tried again, starves no other."""


def read_ahead(unsettled: Mapping[TopicPartition, int], max_in_flight: int) -> int:
    """How many more records each partition may bring in search of other keys, given what each has
    not settled.
    """
    room = READ_AHEAD * max_in_flight - sum(unsettled.values())
    return max(0, min(max_in_flight, room // max(1, len(unsettled))))


PAUSE_AFTER_S = 1.0
"""How long a partition without room is merely left out of polls. Pausing throws away what was
fetched for it; but while that lies unread the client fetches less from the same broker for the
others."""


class FetchPauses:
    """Pauses the partitions of one client; what is true of one of them stands with it."""

    def __init__(self) -> None:
        self._round = 0
        self._closed: list[Partition] = []

    def update(
        self,
        left_out: Iterable[Partition],
        wanted: Collection[TopicPartition],
        stopped: Collection[TopicPartition],
        now: float,
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """What to pause and what to resume, given who is polled for now and who is stopped for a
        reason of its own.

        One that is not read for now, and starts anew later in the same assignment, is paused at the
        client until then.
        """
        to_resume = [one for one in self._closed if one.is_paused and one.id in wanted]
        for one in to_resume:
            one.is_paused = False
        to_pause = []
        self._round += 1
        for one in left_out:
            # Being polled for in between ends the wait. A round's number tells that without a look
            # at all the others.
            if one.left_out_in != self._round - 1:
                one.left_out_since = now
            one.left_out_in = self._round
            if not one.is_paused and (
                one.id in stopped or now - one.left_out_since >= PAUSE_AFTER_S
            ):
                one.is_paused = True
                to_pause.append(one)
        self._closed = [
            one for one in self._closed if one.is_paused and one not in to_pause
        ] + to_pause
        return [one.id for one in to_pause], [one.id for one in to_resume]
