"""The slots of a limit that several channels share."""

from __future__ import annotations

from reactive_kafka.delivery.workers.shared_limit import SharedLimit
from reactive_kafka.delivery.workers.slots import ChannelSlots


class Channel:
    """A channel that takes the slots that it is offered, as long as it wants any."""

    def __init__(self, wants: int = 1) -> None:
        self.wants = wants
        self.got = 0

    def offer(self) -> bool:
        if not self.wants:
            return False
        self.wants -= 1
        self.got += 1
        return True


def test_no_more_slots_are_taken_than_there_are() -> None:
    limit = SharedLimit("database", 2)
    assert [limit.take(Channel()) for _ in range(3)] == [True, True, False]


def test_a_slot_that_is_given_back_goes_to_the_channel_that_has_waited_longest() -> None:
    limit = SharedLimit("database", 1)
    first, second = Channel(), Channel()
    limit.take(Channel())
    limit.take(first)
    limit.take(second)
    limit.give_back()
    assert (first.got, second.got) == (1, 0)
    limit.give_back()
    assert (first.got, second.got) == (1, 1)


def test_a_channel_that_has_no_use_for_a_slot_leaves_it_to_the_next() -> None:
    limit = SharedLimit("database", 1)
    idle, busy = Channel(wants=0), Channel()
    limit.take(Channel())
    limit.take(idle)
    limit.take(busy)
    limit.give_back()
    assert busy.got == 1
    # Nobody waits any more, so the slot is free.
    limit.give_back()
    assert limit.take(Channel())


def test_a_channel_that_ends_while_it_waits_is_offered_nothing_more() -> None:
    limit = SharedLimit("database", 1)
    limit.take(Channel())
    ends, other = ChannelSlots(limit), Channel()
    assert not ends.take()
    assert ends.waits
    limit.take(other)
    ends.close()
    assert not ends.waits
    assert not limit.has_queued(ends)
    limit.give_back()
    assert other.got == 1
