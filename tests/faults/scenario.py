"""What all fault tests share: a topic and a group of their own, members, load, an observer, and the
verdict.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.faults.checker import Disruption, Evidence
from tests.faults.driver import (
    CONFIRM_S,
    SERVICE,
    Load,
    Member,
    Parcel,
    create_topic,
    free_port,
    work,
)
from tests.faults.history import Event, Partition
from tests.faults.observer import Observer, read_commits, read_log, read_log_ends

COMMIT_INTERVAL_S = 0.3

CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"

[incoming.orders]
topic = "{topic}"
group_id = "{group}"
auto_offset_reset = "earliest"
value_deserializer = "json"
commit_interval = "{commit_interval}s"
concurrency = 8
"session.timeout.ms" = {session_ms}
"heartbeat.interval.ms" = 500
{channel}

[http]
port = {port}
"""


def new_topic() -> str:
    """A name that nobody has used; also that of its group."""
    return f"orders-{uuid4().hex[:8]}"


@dataclass
class Scenario:
    """One topic and one group on one broker, and everything that happens there.

    Attributes:
        disruptions: What the test did to processes, for the checker.
    """

    bootstrap: str
    topic: str
    partitions: list[Partition]
    folder: Path
    load: Load
    observer: Observer
    members: list[Member] = field(default_factory=list)
    disruptions: list[Disruption] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        """The histories of all processes up to now."""
        return [event for member in self.members for event in member.events]

    def done(self) -> int:
        """How many different records were handled up to now."""
        return len(
            {
                (event.tp, event.offset)
                for event in self.events
                if event.kind == "end" and event.outcome == "ok"
            }
        )

    def all_is_committed(self) -> bool:
        """Whether the group's committed offset stands behind the last confirmed record of every
        partition.
        """
        ends = dict.fromkeys(self.partitions, 0)
        for tp, offset in self.load.sent:
            ends[tp] = max(ends[tp], offset + 1)
        return all(self.observer.committed(tp) >= end for tp, end in ends.items())

    async def evidence(self) -> Evidence:
        """All that can be known about the run, read back from the broker and the histories.

        What is not in the histories is kept beside them, for whoever has to explain a red run.
        """
        evidence = Evidence(
            events=self.events,
            commits=[
                *self.observer.commits,
                *await read_commits(self.bootstrap, self.topic),
            ],
            log=await read_log(self.bootstrap, self.partitions),
            log_end=await read_log_ends(self.bootstrap, self.partitions),
            sent=self.load.sent,
            maybe=frozenset(self.load.maybe),
            disruptions=self.disruptions,
        )
        kept = {
            "commits": evidence.commits,
            "log_end": list(evidence.log_end.items()),
            "cuts": self.disruptions,
        }
        (self.folder / "evidence.json").write_text(json.dumps(kept))
        return evidence


def member(
    scenario: Scenario,
    name: str,
    *,
    channel: str = "",
    options: Sequence[str] = (),
    module: str = SERVICE,
    session_ms: int = 3000,
    bootstrap: str | None = None,
) -> Member:
    """A member of the scenario's group, not started yet; *channel* is more TOML for its channel.

    *bootstrap* is where it finds the brokers, if not where the scenario itself does.
    """
    port = free_port()
    config = CONFIG.format(
        bootstrap=bootstrap or scenario.bootstrap,
        topic=scenario.topic,
        group=scenario.topic,
        commit_interval=COMMIT_INTERVAL_S,
        session_ms=session_ms,
        channel=channel,
        port=port,
    )
    made = Member(name, scenario.folder, config, port, module, tuple(options))
    scenario.members.append(made)
    return made


@asynccontextmanager
async def playing(
    bootstrap: str,
    folder: Path,
    partitions: int = 6,
    *,
    topic: str | None = None,
    replicas: Sequence[Sequence[int]] | None = None,
    make: Callable[[str, int, Partition], Parcel] = work,
    confirm_s: float = CONFIRM_S,
    config: Mapping[str, str] | None = None,
) -> AsyncIterator[Scenario]:
    """A new topic, observed; its processes do not outlive the block. The group is called as the
    topic.

    *replicas* are the nodes of each partition, its leader first; *make* and *confirm_s* are those
    of the load, *config* is the topic's.
    """
    topic = topic or new_topic()
    created = await create_topic(bootstrap, topic, partitions, replicas, config)
    observer = Observer(bootstrap, topic, created)
    async with Load(bootstrap, created, make, confirm_s) as load, observer.watching():
        scenario = Scenario(bootstrap, topic, created, folder, load, observer)
        try:
            yield scenario
        finally:
            for one in scenario.members:
                for life in one.lives:
                    life.end()
