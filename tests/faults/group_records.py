"""Reads the records of the groups' own topic: commits, and who owns what. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tests.faults.checker import Commit
from tests.faults.history import Partition
from tests.faults.owners import Generation, GroupEntry, GroupEpoch, MemberEpoch
from tests.faults.tap import Words

COMMIT_KEYS = (0, 1)
# Of classic groups.
GROUP_KEY = 2
GROUP_VERSION = 3
# Of groups with the consumer protocol.
EPOCH_KEY = 3
MEMBER_KEY = 5
ASSIGNMENT_KEY = 8
TOPIC_ID_BYTES = 16


class GroupRecords:
    """Takes the records in their order.

    Args:
        names: id of a topic -> its name.
    """

    def __init__(self, names: Mapping[bytes, str]) -> None:
        self._names = names
        # Member id -> its client id.
        self._clients: dict[str, str] = {}

    def take(self, t: float, key: bytes, value: bytes | None) -> tuple[str, GroupEntry | None]:
        """The group of a record, and what it says; None: nothing that concerns us.

        ``t`` is the broker's time of storing it; of a commit it is rounded up from its
        milliseconds.
        """
        words = Words(key)
        kind, group = words.number(">h"), words.text()
        if kind == ASSIGNMENT_KEY:
            return group, self._member_epoch(t, words.text(), value)
        if value is None:
            return group, None
        if kind in COMMIT_KEYS:
            place = words.text(), words.number(">i")
            # After the version: so in all of them, 0 to 4.
            (offset,) = struct.unpack_from(">q", value, 2)
            return group, Commit(t + 0.001, place, offset, "log")
        if kind == GROUP_KEY and Words(value).number(">h") == GROUP_VERSION:
            return group, _generation(t, value)
        if kind == EPOCH_KEY:
            # After the version.
            return group, GroupEpoch(t, *struct.unpack_from(">i", value, 2))
        if kind == MEMBER_KEY:
            self._clients[words.text()] = _client_of(value)
        return group, None

    def _member_epoch(self, t: float, member: str, value: bytes | None) -> MemberEpoch:
        """Source: ConsumerGroupCurrentMemberAssignmentValue.json of Kafka, version 0."""
        client = self._clients.get(member, "")
        if value is None:
            return MemberEpoch(t, member, client, -1, frozenset())
        words = Words(value, 2)
        epoch = words.number(">i")
        # The epoch before, and the state.
        words.number(">i"), words.number(">b")
        # What it owns, and what it has still to give up.
        found = [*self._by_topic_id(words), *self._by_topic_id(words)]
        return MemberEpoch(t, member, client, epoch, frozenset(found))

    def _by_topic_id(self, words: Words) -> list[Partition]:
        found = []
        for _ in range(words.count()):
            topic_id = words.fixed(TOPIC_ID_BYTES)
            numbers = [words.number(">i") for _ in range(words.count())]
            words.tags()
            # A topic that was deleted has no name any more.
            found += [(self._names.get(topic_id, topic_id.hex()), number) for number in numbers]
        return found


def _client_of(value: bytes) -> str:
    """Source: ConsumerGroupMemberMetadataValue.json of Kafka, version 0."""
    words = Words(value, 2)
    # The instance id, and the rack.
    words.short_text(), words.short_text()
    return words.short_text()


def _generation(t: float, value: bytes) -> Generation:
    """Source: GroupMetadataValue.json of Kafka, version 3."""
    words = Words(value)
    words.number(">h"), words.text()
    number = words.number(">i")
    words.text(), words.text(), words.number(">q")
    owners: dict[Partition, str] = {}
    for _ in range(words.number(">i")):
        words.text(), words.text()
        client = words.text()
        words.text(), words.number(">i"), words.number(">i"), words.raw()
        owners |= dict.fromkeys(_assigned(words.raw()), client)
    return Generation(t, number, owners)


def _assigned(assignment: bytes) -> list[Partition]:
    """Source: ConsumerProtocolAssignment.json of Kafka."""
    if not assignment:
        return []
    words = Words(assignment, 2)
    found = []
    for _ in range(words.number(">i")):
        topic = words.text()
        found += [(topic, words.number(">i")) for _ in range(words.number(">i"))]
    return found
