"""Writes and reads the string that is stored with a position in the group. No I/O.

A string of the user's is stored as it is if there is nothing else to store. Otherwise everything
goes into an envelope, which people can read with Kafka's own tools::

    rk1 6b2e 100 23 5 100-150 150-175<150-200 hello t=kTo5Xr2m
    |   |    |   |  | |                       |     |
    |   |    |   |  | plans                   |     the topic's id; then the kept acks, if any
    |   |    |   |  |                         the user's string
    |   |    |   |  characters of the user's string
    |   |    |   characters of the plans
    |   |    the position that all this belongs to
    |   CRC-16 (CCITT, from 0) of all that follows, as UTF-8
    magic and version

A plan is ``start-until``, followed by ``<start-until`` for each range around it that failed as a
whole, the outermost first; or by ``=2`` if those are the first two around the plan before it. Of
the topic's id the first characters are stored: a topic that is deleted and created again gets
another one, and nothing of this is true of it. Later versions have to keep the header, so that the
user's string can be read in all of them.
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
# An id has 22 characters. Eight of them are 48 random bits.
_TOPIC_CHARACTERS = 8
_PLAN = re.compile(
    r"[0-9]{1,19}-[0-9]{1,19}(?:(?:<[0-9]{1,19}-[0-9]{1,19})*|=[0-9]{1,4})", re.ASCII
)


class Metadata(NamedTuple):
    """What was stored with a position."""

    # The user's string. Text that we did not write counts as one, too.
    user: str = ""
    # Ascending; none begins before the position.
    plans: Plans = ()
    # Why there are no plans or no acks although some may have been stored.
    lost: str | None = None
    # What is done beyond the position; None: nothing was kept.
    acks: AckMap | None = None
    # How the id begins of the topic that the position is of; "": it was not stored.
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
    """Write what to store with a position of the topic with this id.

    What does not fit is left out: acks, the topic, the user's string, then plans from the end. The
    first plan always fits, if need be without the ranges that failed around it.

    Args:
        limit: UTF-16 units of the whole text. Plans alone have the limit of Kafka's default.
    """
    tails = (_tail(topic, acks), _tail(topic), "")
    attempts = [(text, tail) for text in (user, "") for tail in tails]
    # Without a user's string, acks or a topic some attempts are the same.
    for user_text, tail in dict.fromkeys(attempts):
        text = _whole(position, plans, user_text, tail)
        if units(text) <= limit:
            return text
    return _fitting(position, plans) if plans else ""


def has_topic(text: str, topic: str) -> bool:
    """Whether a text of :func:`encode` holds this topic id: it is left out if it does not fit.

    A user's string in the text may look the same.
    """
    return bool(topic) and _tail(topic) in text


def _tail(topic: str, acks: str = "") -> str:
    tail = f" t={topic[:_TOPIC_CHARACTERS]}" if topic else ""
    return f"{tail} {acks}" if acks else tail


def _whole(position: int, plans: Plans, user: str, tail: str) -> str:
    if not plans and not tail and not _OURS.match(user):
        return user
    return _envelope(position, plans, user, tail)


def room_for_acks(
    position: int, plans: Plans, user: str, limit: int = LIMIT, *, topic: str = ""
) -> int:
    """How many characters are left for acks; below 0: there is no room for any."""
    return limit - units(_envelope(position, plans, user, _tail(topic))) - 1


def longest_user_text(user: str) -> int:
    """The most UTF-16 units that a user's string may have, so that it can be stored alone."""
    # A string that looks like an envelope of ours is put into one.
    return LIMIT - _ENVELOPE if _OURS.match(user) else LIMIT


def has_room(position: int, plans: Plans, planned: PlannedRange) -> bool:
    """Whether one more plan could be stored with *plans*, all of them whole."""
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
    """A plan as text; the ranges that failed around it are counted if the one *before* has them."""
    around = len(planned.failed)
    if around and before is not None and before.failed[:around] == planned.failed:
        return f"{planned.start}-{planned.until}={around}"
    return "<".join(f"{start}-{until}" for start, until in (planned[:2], *planned.failed))


def decode(text: str, position: int) -> Metadata:
    """Read what was stored with a position of the group.

    No text is an error: every client that can commit may write there.
    """
    header = _HEADER.match(text)
    if header is None:
        if text.startswith(f"{_MAGIC} "):
            return Metadata(lost="it was changed or cut off")
        return Metadata(user=text)
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
    topic = ""
    topic_match = _TOPIC.match(tail)
    if topic_match is not None:
        topic = topic_match[1]
        tail = tail[topic_match.end() :]
    acks = ackmap.decode(tail[1:], position) if tail else None
    is_unread = plans is None or (tail != "" and acks is None)
    lost = "it cannot be read" if is_unread else None
    return Metadata(users, plans or (), lost, acks, topic)


def without_topic(text: str, position: int) -> str:
    """The same text without the topic's id: it holds for any topic with the name then."""
    found = decode(text, position)
    if not found.topic:
        return text
    acks = text.rpartition(_tail(found.topic))[2]
    return _whole(position, found.plans, found.user, acks)


def as_in_kafka(text: str, position: int) -> str:
    """The same text for Kafka, which needs the topic's id with plans and kept acks only.

    Kafka drops positions with their topic, so a position alone is always of the topic.
    """
    found = decode(text, position)
    if found.plans or found.acks is not None:
        return text
    return without_topic(text, position)


def _plans(text: str, position: int) -> Plans | None:
    """Read plans; None: these are none, or they do not belong to the position."""
    found: list[PlannedRange] = []
    for word in text.split(" ") if text else ():
        if _PLAN.fullmatch(word) is None:
            return None
        shown, _, around = word.partition("=")
        ranges = [
            (int(start), int(until))
            for start, until in (pair.split("-") for pair in shown.split("<"))
        ]
        failed = tuple(ranges[1:])
        if around and found:
            failed = found[-1].failed[: int(around)]
        found.append(PlannedRange(*ranges[0], failed))
    try:
        check_plans(found)
    except ValueError:
        # Another client wrote it. The records are cut as without a plan.
        return None
    if found and found[0].start < position:
        return None
    return tuple(found)


def units(text: str) -> int:
    """How long a string is for a broker, in UTF-16 units."""
    return len(text) + sum(character > "\uffff" for character in text)


def _crc(text: str) -> str:
    return f"{crc_hqx(text.encode('utf-8', 'surrogatepass'), 0):04x}"


_ENVELOPE = units(_envelope(2**63 - 1, (), "x" * LIMIT)) - LIMIT
