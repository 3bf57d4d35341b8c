"""A coordinator of groups with the classic protocol, as plain rules, for tests.

It follows Kafka's ``GroupCoordinator`` and ``GroupMetadataManager`` (4.4). Answers to JoinGroup and
SyncGroup may come much later than the request, so each request has a callback for its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82

Answer = dict[str, Any]
Callback = Callable[[Answer], None]


@dataclass
class JoinedMember:
    """What the coordinator knows of a member."""

    member_id: str
    instance_id: str | None
    protocols: dict[str, bytes]
    session_s: float
    rebalance_s: float
    seen_at: float
    assignment: bytes = b""
    # Waits for the answer to its JoinGroup, or to its SyncGroup.
    joining: Callback | None = None
    syncing: Callback | None = None


@dataclass
class ClassicGroupModel:
    """One group: ``empty``, ``preparing``, ``completing`` or ``stable``."""

    state: str = "empty"
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: dict[str, JoinedMember] = field(default_factory=dict)
    deadline: float = 0.0
    # Ids that were given to members that have not joined yet.
    promised: set[str] = field(default_factory=set)
    _ids: Any = field(default_factory=lambda: count(1))
    # The group as it is in the log, from where a new coordinator reads it.
    _stored: tuple[int, str, str, dict[str, JoinedMember]] = (0, "", "", {})

    def join(self, values: Mapping[str, Any], now: float, answer: Callback) -> None:
        """Take a JoinGroup. It is answered when the next generation begins."""
        member_id = values["member_id"]
        instance_id = values["group_instance_id"]
        protocols = {one["name"]: one["metadata"] for one in values["protocols"]}
        if not member_id and instance_id is None:
            member_id = f"member-{next(self._ids)}"
            self.promised.add(member_id)
            answer(_no_generation(MEMBER_ID_REQUIRED, member_id))
            return
        if not member_id:
            self._join_static(values, protocols, now, answer)
            return
        if instance_id is not None and self._static(instance_id) not in (None, member_id):
            answer(_no_generation(FENCED_INSTANCE_ID))
            return
        if member_id not in self.members and member_id not in self.promised:
            answer(_no_generation(UNKNOWN_MEMBER_ID))
            return
        if not self._fits(member_id, protocols):
            answer(_no_generation(INCONSISTENT_GROUP_PROTOCOL))
            return
        member = self.members.get(member_id)
        if member is None:
            self.promised.discard(member_id)
            self._add(member_id, values, protocols, now, answer)
            return
        is_same = member.protocols == protocols
        has_to_rebalance = self.state == "stable" and (member_id == self.leader or not is_same)
        if is_same and self.state in ("completing", "stable") and not has_to_rebalance:
            # The answer was lost, or nothing has changed.
            member.seen_at = now
            answer(self._generation_of(member))
            return
        member.protocols = protocols
        self._await_join(member, now, answer)

    def _join_static(
        self, values: Mapping[str, Any], protocols: dict[str, bytes], now: float, answer: Callback
    ) -> None:
        """A static member was started again: it takes the place of its last run."""
        member_id = f"static-{next(self._ids)}"
        old_id = self._static(values["group_instance_id"])
        if not self._fits(old_id or "", protocols):
            answer(_no_generation(INCONSISTENT_GROUP_PROTOCOL))
            return
        if old_id is None:
            self._add(member_id, values, protocols, now, answer)
            return
        old = self.members.pop(old_id)
        for waiting in (old.joining, old.syncing):
            if waiting is not None:
                waiting(_no_generation(FENCED_INSTANCE_ID))
        member = replace(old, member_id=member_id, joining=None, syncing=None, seen_at=now)
        self.members[member_id] = member
        self._rename_stored(old_id, member_id)
        was_leader = old_id == self.leader
        if was_leader:
            self.leader = member_id
        chosen = self._chosen()
        member.protocols = protocols
        if self.state == "stable" and chosen == self._chosen():
            self._store()
            answer({**self._generation_of(member), "skip_assignment": was_leader})
            return
        self._await_join(member, now, answer)

    def _add(
        self,
        member_id: str,
        values: Mapping[str, Any],
        protocols: dict[str, bytes],
        now: float,
        answer: Callback,
    ) -> None:
        member = JoinedMember(
            member_id,
            values["group_instance_id"],
            protocols,
            values["session_timeout_ms"] / 1000,
            values["rebalance_timeout_ms"] / 1000,
            now,
        )
        self.members[member_id] = member
        self._await_join(member, now, answer)

    def _await_join(self, member: JoinedMember, now: float, answer: Callback) -> None:
        member.joining = answer
        if self.state != "preparing":
            self._prepare(now)
        self._complete_if_all_joined(now)

    def sync(self, values: Mapping[str, Any], now: float, answer: Callback) -> None:
        """Take a SyncGroup. It is answered when the leader has sent the assignments."""
        refusal = self._refusal(values)
        if refusal:
            answer(_assignment(refusal))
            return
        assert values["protocol_name"] == self.protocol
        member = self.members[values["member_id"]]
        member.seen_at = now
        if self.state == "preparing":
            answer(_assignment(REBALANCE_IN_PROGRESS))
            return
        member.syncing = answer
        if self.state == "completing" and member.member_id == self.leader:
            for one in values["assignments"]:
                self.members[one["member_id"]].assignment = one["assignment"]
            self.state = "stable"
            self._store()
        if self.state == "stable":
            for one in self.members.values():
                if one.syncing is not None:
                    callback = one.syncing
                    one.syncing = None
                    one.seen_at = now
                    callback(_assignment(0, one.assignment))

    def heartbeat(self, values: Mapping[str, Any], now: float) -> Answer:
        refusal = self._refusal(values)
        if refusal:
            return {"error_code": refusal}
        self.members[values["member_id"]].seen_at = now
        return {"error_code": REBALANCE_IN_PROGRESS if self.state == "preparing" else 0}

    def describe(self) -> Answer:
        """The answer to DescribeGroups."""
        states = {"preparing": "PreparingRebalance", "completing": "CompletingRebalance"}
        members = [
            {"member_id": member.member_id, "member_assignment": member.assignment}
            for member in self.members.values()
        ]
        state = states.get(self.state, self.state.capitalize())
        return {"groups": [{"error_code": 0, "group_state": state, "members": members}]}

    def leave(self, values: Mapping[str, Any], now: float) -> None:
        for one in values["members"]:
            assert one["group_instance_id"] is None, "a static member never leaves"
            self.promised.discard(one["member_id"])
            self.remove(one["member_id"], now)

    def remove(self, member_id: str, now: float) -> None:
        """Remove a member, and rebalance."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                waiting(_no_generation(UNKNOWN_MEMBER_ID))
        if self.state != "preparing":
            self._prepare(now)
        self._complete_if_all_joined(now)

    def tick(self, now: float) -> None:
        """Remove members without heartbeats, and those that do not join or sync in time."""
        for member in list(self.members.values()):
            is_waiting = member.joining is not None or member.syncing is not None
            if not is_waiting and now >= member.seen_at + member.session_s:
                self.remove(member.member_id, now)
        if self.state == "preparing" and now >= self.deadline:
            for member in list(self.members.values()):
                if member.joining is None:
                    del self.members[member.member_id]
            self._complete_if_all_joined(now)
        elif self.state == "completing" and now >= self.deadline:
            for member in list(self.members.values()):
                if member.syncing is None:
                    self.remove(member.member_id, now)

    def move_coordinator(self, now: float) -> None:
        """Another broker becomes the coordinator. It knows the group as it was when last stable."""
        waiting = [
            callback
            for member in self.members.values()
            for callback in (member.joining, member.syncing)
            if callback is not None
        ]
        self.generation, self.protocol, self.leader, members = deepcopy(self._stored)
        self.members = {name: replace(member, seen_at=now) for name, member in members.items()}
        self.state = "stable" if self.members else "empty"
        self.promised.clear()
        for callback in waiting:
            callback(_no_generation(NOT_COORDINATOR))

    def _store(self) -> None:
        members = {
            name: replace(member, joining=None, syncing=None)
            for name, member in self.members.items()
        }
        self._stored = (self.generation, self.protocol, self.leader, members)

    def _rename_stored(self, old_id: str, member_id: str) -> None:
        """Store the new id of a static member at once.

        Kafka stores it with the next generation. A coordinator that reads the log before that
        knows the last run only, and fences the new one: a fault that no client can heal.
        """
        generation, protocol, leader, members = self._stored
        if old_id in members:
            renamed = {**members, member_id: replace(members[old_id], member_id=member_id)}
            del renamed[old_id]
            leader = member_id if leader == old_id else leader
            self._stored = (generation, protocol, leader, renamed)

    def _static(self, instance_id: str) -> str | None:
        """The id of the member with this instance id."""
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member.member_id
        return None

    def _fits(self, member_id: str, protocols: Mapping[str, bytes]) -> bool:
        """Whether all members have an assignor in common if this one offers these."""
        others = [one.protocols for name, one in self.members.items() if name != member_id]
        return any(all(name in other for other in others) for name in protocols)

    def _refusal(self, values: Mapping[str, Any]) -> int:
        member = self.members.get(values["member_id"])
        instance_id = values["group_instance_id"]
        if instance_id is not None and self._static(instance_id) not in (
            None,
            values["member_id"],
        ):
            return FENCED_INSTANCE_ID
        if member is None:
            return UNKNOWN_MEMBER_ID
        return 0 if values["generation_id"] == self.generation else ILLEGAL_GENERATION

    def _prepare(self, now: float) -> None:
        self.state = "preparing"
        longest = max((member.rebalance_s for member in self.members.values()), default=0.0)
        self.deadline = now + longest
        for member in self.members.values():
            if member.syncing is not None:
                callback = member.syncing
                member.syncing = None
                callback(_assignment(REBALANCE_IN_PROGRESS))

    def _complete_if_all_joined(self, now: float) -> None:
        if any(member.joining is None for member in self.members.values()):
            return
        self.generation += 1
        self.leader = next(iter(self.members), "")
        if not self.members:
            self.state = "empty"
            self._store()
            return
        self.protocol = self._chosen()
        self.state = "completing"
        self.deadline = now + max(member.rebalance_s for member in self.members.values())
        for member in list(self.members.values()):
            callback = member.joining
            member.joining = None
            member.assignment = b""
            member.seen_at = now
            if callback is not None:
                callback(self._generation_of(member))

    def _chosen(self) -> str:
        """The assignor with the most votes: each member votes for the first that all offer."""
        offered = [list(member.protocols) for member in self.members.values()]
        common = {name for name in offered[0] if all(name in others for others in offered)}
        votes = Counter(next(name for name in names if name in common) for names in offered)
        return max(votes, key=lambda name: (votes[name], name))

    def _generation_of(self, member: JoinedMember) -> Answer:
        is_leader = member.member_id == self.leader
        members = [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "metadata": one.protocols[self.protocol],
            }
            for one in self.members.values()
        ]
        return {
            "error_code": 0,
            "generation_id": self.generation,
            "protocol_name": self.protocol,
            "leader": self.leader,
            "skip_assignment": False,
            "member_id": member.member_id,
            "members": members if is_leader else [],
        }


def _no_generation(code: int, member_id: str = "") -> Answer:
    return {"error_code": code, "member_id": member_id, "assignment": b""}


def _assignment(code: int, content: bytes = b"") -> Answer:
    return {"error_code": code, "assignment": content}
