"""The ``cooperative-sticky`` assignor: members keep their partitions during a rebalance. Pure.

A partition that moves is first withheld from everyone: its owner revokes it and joins again, and
the next assignment gives it to its new owner. Source: KIP-429, ``CooperativeStickyAssignor``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    NO_GENERATION,
    MemberSubscription,
    Shares,
    ordered,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.sticky_balance import (
    sticky_shares,
    valid_owners,
)
from reactive_kafka.records import TopicPartition


class CooperativeStickyAssignor:
    """Gives the shares of the sticky assignor, without what another member still owns."""

    name = "cooperative-sticky"
    is_cooperative = True

    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        partitions: Mapping[str, Sequence[int]],
        replica_racks: Mapping[TopicPartition, frozenset[str]],
    ) -> Shares:
        claims = {
            member_id: (members[member_id].owned, generation_of(members[member_id]))
            for member_id in ordered(members)
        }
        owners = valid_owners(claims)
        shares = sticky_shares(members, partitions, owners)
        return {
            member_id: {
                partition
                for partition in share
                # None: two members say that they own it, and both must revoke it first.
                if owners.get(partition, member_id) == member_id
            }
            for member_id, share in shares.items()
        }

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes:
        """Return the generation, for leaders whose subscriptions have no field for it."""
        return struct.pack(">i", generation)


def generation_of(member: MemberSubscription) -> int:
    """Return the generation of what a member owns.

    Subscriptions have a field for it since version 2. Older clients put it into the user data.
    """
    if member.generation == NO_GENERATION and len(member.user_data) >= 4:
        return int(struct.unpack_from(">i", member.user_data)[0])
    return member.generation
