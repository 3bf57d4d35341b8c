"""What is stored with a position, written and read for tests that look at a group from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reactive_kafka import Committed
from reactive_kafka.tracking.metadata import acks as ack_maps
from reactive_kafka.tracking.metadata.codec import decode, encode, without_topic
from reactive_kafka.tracking.plans import PlannedRange

# For the map of the acks.
MOST_CHARACTERS = 500


class KeptAcks(NamedTuple):
    """The acks from *base* up to *until* (exclusive) that were stored: all but those that are open."""

    base: int
    until: int
    still_open: list[int]

    def is_done(self, offset: int) -> bool:
        return self.base <= offset < self.until and offset not in self.still_open


def text_with_plans(
    position: int, *ranges: tuple[int, int] | PlannedRange, user: str = "", topic: str = ""
) -> str:
    """What a member stores with a position that has planned these ranges."""
    return encode(position, tuple(PlannedRange(*one) for one in ranges), user, topic=topic)


def without_topic_id(found: Committed) -> Committed:
    """What was stored without the id of the topic, which stands beside plans and kept acks."""
    return Committed(found.offset, without_topic(found.metadata, found.offset))


def text_with_acks(
    position: int,
    still_open: Sequence[int],
    until: int,
    *ranges: tuple[int, int],
    user: str = "",
    topic: str = "",
) -> str:
    """What a member stores with a position that has kept the acks of all but these offsets."""
    acks, _ = ack_maps.encode(still_open, position, until, MOST_CHARACTERS)
    planned = tuple(PlannedRange(*one) for one in ranges)
    return encode(position, planned, user, acks, topic=topic)


def text_with(position: int, *, user: str, acks: str) -> str:
    """A whole envelope around any text in the place of the map."""
    return encode(position, (), user, acks)


def plans_in(text: str, position: int | None) -> list[tuple[int, int]]:
    """The ranges that are planned from a stored position on."""
    return [(plan.start, plan.until) for plan in decode(text, position or 0).plans]


def acks_in(text: str, position: int) -> KeptAcks | None:
    """The acks that were stored with a position, None if there are none."""
    acks = decode(text, position).acks
    return None if acks is None else KeptAcks(acks.base, acks.until, list(acks.open))


def user_string_in(text: str, position: int) -> str:
    """The user's own string among what was stored."""
    return decode(text, position).user
