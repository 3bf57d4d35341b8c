"""What stands beside a position in the group: plans, the user's string, and room for more. No I/O.

A string of the user's goes out as it is where there is nothing else to say. Else all goes into an
envelope, which a person can read with Kafka's own tools::

    rk1 6b2e 100 23 5 100-150 150-175<150-200 hello t=kTo5Xr2m
    |   |    |   |  | |                       |     |
    |   |    |   |  | plans                   |     the topic's id; a blank and the kept acks, if there are any
    |   |    |   |  |                         the user's string
    |   |    |   |  characters of the user's string
    |   |    |   characters of the plans
    |   |    the position that all this belongs to
    |   CRC-16 (CCITT, from 0) of all that follows, as UTF-8
    magic and version

A plan is ``start-until``, and behind it ``<start-until`` for each range that failed as a whole and
held it, the outermost first; or ``=2`` where those are the first two that held the plan before it.
Of the topic's id the first characters stand there: a topic that is deleted and made anew gets
another one, and nothing of this is true of it. The header is that of every later version, so that
the user's string can be read in all of them.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from typing import NamedTuple

from reactive_kafka.tracking.metadata import acks as ackmap
from reactive_kafka.tracking.metadata.acks import AckMap
from reactive_kafka.tracking.plans import PlannedRange, Plans, check_plans

LIMIT = 4096
"""UTF-16 units: what a broker takes unless its ``offset.metadata.max.bytes`` says otherwise."""

_MAGIC = "rk1"
_OURS = re.compile(r"rk[0-9]")
_HEADER = re.compile(
    r"rk([1-9][0-9]{0,3}) ([0-9a-f]{4}) ([0-9]{1,19}) ([0-9]{1,4}) ([0-9]{1,4}) ", re.ASCII
)
_TOPIC = re.compile(r" t=([A-Za-z0-9_-]{1,8})(?= |$)", re.ASCII)
# Of 22: 48 bits of chance.
_TOPIC_CHARACTERS = 8
_PLAN = re.compile(
    r"[0-9]{1,19}-[0-9]{1,19}(?:(?:<[0-9]{1,19}-[0-9]{1,19})*|=[0-9]{1,4})", re.ASCII
)


class Metadata(NamedTuple):
    """What was read beside a position."""

    # The user's string; text that we did not write is that, too.
    user: str = ""
    # Ascending, none begins before the position.
    plans: Plans = ()
    # Why there are no plans or no acks although some may have been stored.
    lost: str | None = None
    # What is done beyond the position; None: nothing was kept.
    acks: AckMap | None = None
    # How the id of the topic begins that all this, and the position, is of; "": not told.
    topic: str = ""


def encode(
    position: int,
    plans: Plans,
    user: str = "",
    acks: str = "",
    *,
    topic: str = "",
    limit: int = LIMIT,
) -> str:
    """What to store with a position of the topic with this id. What does not fit is left out: acks,
    the topic, the user's string, then plans from the end.

    The first plan always fits: without the ranges that failed before it if need be. The *limit*, in
    UTF-16 units, is of the whole, as long as there is something of the user's in it, the topic, or
    acks.
    """
    tails = (_tail(topic, acks), _tail(topic), "")
    for said, tail in dict.fromkeys((said, tail) for said in (user, "") for tail in tails):
        text = _whole(position, plans, said, tail)
        if units(text) <= limit:
            return text
    return _fitting(position, plans) if plans else ""


def _tail(topic: str, acks: str = "") -> str:
    return (f" t={topic[:_TOPIC_CHARACTERS]}" if topic else "") + (f" {acks}" if acks else "")


def _whole(position: int, plans: Plans, user: str, tail: str) -> str:
    if not plans and not tail and not _OURS.match(user):
        return user
    return _envelope(position, plans, user, tail)


def room_for_acks(
    position: int, plans: Plans, user: str, limit: int = LIMIT, *, topic: str = ""
) -> int:
    """Characters that are left for acks beside the rest; below 0: there is no room for any."""
    return limit - units(_envelope(position, plans, user, _tail(topic))) - 1


def longest_user_text(user: str) -> int:
    """The most UTF-16 units that a user's string may have, so that it can be stored alone."""
    return LIMIT - _ENVELOPE if _OURS.match(user) else LIMIT


def has_room(position: int, plans: Plans, planned: PlannedRange) -> bool:
    """Whether one more plan would be stored beside *plans*, all of them whole."""
    return (
        units(_envelope(position, (*plans, planned), "", _tail("t" * _TOPIC_CHARACTERS))) <= LIMIT
    )


def _fitting(position: int, plans: Plans) -> str:
    while len(plans) > 1 and len(_envelope(position, plans, "")) > LIMIT:
        plans = plans[:-1]
    while plans[0].failed and len(_envelope(position, plans, "")) > LIMIT:
        plans = (plans[0]._replace(failed=plans[0].failed[:-1]),)
    return _envelope(position, plans, "")


def _envelope(position: int, plans: Plans, user: str, tail: str = "") -> str:
    before: tuple[PlannedRange | None, ...] = (None, *plans)
    planned = " ".join(map(_text_of, plans, before))
    covered = f"{position} {len(planned)} {len(user)} {planned} {user}{tail}"
    return f"{_MAGIC} {_crc(covered)} {covered}"


def _text_of(planned: PlannedRange, before: PlannedRange | None) -> str:
    """A plan; what has failed around it is only counted where it failed around the plan *before*
    it, too.
    """
    around = len(planned.failed)
    if around and before is not None and before.failed[:around] == planned.failed:
        return f"{planned.start}-{planned.until}={around}"
    return "<".join(f"{start}-{until}" for start, until in (planned[:2], *planned.failed))


def decode(text: str, position: int) -> Metadata:
    """What stands beside a position of the group. Nothing in it is an error: whoever can commit may
    write there.
    """
    header = _HEADER.match(text)
    if header is None:
        return (
            Metadata(lost="it was changed or cut off")
            if text.startswith(f"{_MAGIC} ")
            else Metadata(user=text)
        )
    version, crc, belongs_to, planned, user = header.groups()
    ends = header.end() + int(planned)
    begins = ends + 1
    users = text[begins : begins + int(user)]
    if version != "1":
        return Metadata(users, lost=f"version {version} is not known")
    tail = text[begins + int(user) :]
    is_whole = text[ends:begins] == " " and tail[:1] in ("", " ") and len(users) == int(user)
    if not is_whole or _crc(text[header.start(3) :]) != crc:
        return Metadata(users, lost="it was changed or cut off")
    if int(belongs_to) != position:
        return Metadata(users, lost=f"it belongs to position {belongs_to}")
    plans = _plans(text[header.end() : ends], position)
    told = _TOPIC.match(tail)
    topic, tail = ("", tail) if told is None else (told[1], tail[told.end() :])
    acks = ackmap.decode(tail[1:], position) if tail else None
    lost = "it cannot be read" if plans is None or (tail and acks is None) else None
    return Metadata(users, plans or (), lost, acks, topic)


def without_topic(text: str, position: int) -> str:
    """The same for whatever topic has the name: somebody wishes it so."""
    found = decode(text, position)
    if not found.topic:
        return text
    acks = text.rpartition(_tail(found.topic))[2]
    return _whole(position, found.plans, found.user, acks)


def as_in_kafka(text: str, position: int) -> str:
    """The same for Kafka, which drops positions with their topic: the topic is told with plans and
    kept acks only.
    """
    found = decode(text, position)
    return text if found.plans or found.acks is not None else without_topic(text, position)


def _plans(text: str, position: int) -> Plans | None:
    """The plans; None: these are none, or they do not belong to the position."""
    found: list[PlannedRange] = []
    for one in text.split(" ") if text else ():
        if _PLAN.fullmatch(one) is None:
            return None
        shown, _, around = one.partition("=")
        ranges = [
            (int(start), int(until))
            for start, until in (pair.split("-") for pair in shown.split("<"))
        ]
        failed = found[-1].failed[: int(around)] if around and found else tuple(ranges[1:])
        found.append(PlannedRange(*ranges[0], failed))
    try:
        check_plans(found)
    except ValueError:
        # Whoever wrote it; the records are cut anew, as without a plan.
        return None
    return None if found and found[0].start < position else tuple(found)


def units(text: str) -> int:
    """How long a string is for a broker, in UTF-16 units."""
    return len(text) + sum(character > "\uffff" for character in text)


def _crc(text: str) -> str:
    return f"{crc_hqx(text.encode('utf-8', 'surrogatepass'), 0):04x}"


_ENVELOPE = units(_envelope(2**63 - 1, (), "x" * LIMIT)) - LIMIT
