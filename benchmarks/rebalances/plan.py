"""Who is restarted, and with which settings. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RestartFamily = Literal["ours", "faststream", "java"]
"""Where a contender runs: our environment, one of its own, or the JVM with Kafka's own client."""

MEMBERS = 6
PARTITIONS = 60
PER_PARTITION = 10
"""Records a second in each partition."""
HANDLER_S = 0.020
SESSION_S = 45.0
SECONDS = 8.0
"""Longer than a heartbeat interval of the consumer protocol: the group has settled by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """A row of the table.

    Args:
        name: What the table calls it.
        run: What runs: ``module:function`` below ``benchmarks``, or the protocol of the JVM's
            member.
        family: Where it runs.
        settings: What the page says about its settings.
    """

    name: str
    run: str
    family: RestartFamily
    settings: str


OURS = "reactive_kafka, `consumer`"
_OURS = '`concurrency = 60`, `commit_interval = "1s"`'
_AIOKAFKA = (
    "`getmany`, a queue and a task for each partition. The rebalance listener drops what is queued, "
    "waits for running handlers and commits. `session_timeout_ms` 45 s"
)
_CONFLUENT = (
    "`poll`, a queue and a thread for each partition. `on_revoke` drops what is queued, waits for "
    "running handlers and commits"
)
_JAVA = (
    "`poll`, a queue and a thread for each partition. `onPartitionsRevoked` drops what is queued, "
    "waits for running handlers and commits"
)

ROWS = (
    Restarted(
        name="reactive_kafka, classic",
        run="rebalances.contenders.ours:classic",
        family="ours",
        settings=f'{_OURS}, `group_protocol = "classic"`, the default `assignors`',
    ),
    Restarted(
        name="reactive_kafka, cooperative",
        run="rebalances.contenders.ours:cooperative",
        family="ours",
        settings=f'{_OURS}, `assignors = "cooperative-sticky"`',
    ),
    Restarted(
        name=OURS,
        run="rebalances.contenders.ours:consumer",
        family="ours",
        settings=f"{_OURS}, the default `group_protocol`",
    ),
    Restarted(
        name="aiokafka, round robin",
        run="rebalances.contenders.aiokafka_peer:round_robin",
        family="ours",
        settings=f"{_AIOKAFKA}. Its default assignor",
    ),
    Restarted(
        name="aiokafka, sticky",
        run="rebalances.contenders.aiokafka_peer:sticky",
        family="ours",
        settings="The same with `StickyPartitionAssignor`",
    ),
    Restarted(
        name="confluent-kafka, range",
        run="rebalances.contenders.confluent_peer:classic",
        family="ours",
        settings=f"{_CONFLUENT}. Its default assignor",
    ),
    Restarted(
        name="confluent-kafka, cooperative",
        run="rebalances.contenders.confluent_peer:cooperative",
        family="ours",
        settings="The same with `partition.assignment.strategy=cooperative-sticky`",
    ),
    Restarted(
        name="confluent-kafka, `consumer`",
        run="rebalances.contenders.confluent_peer:consumer",
        family="ours",
        settings="The same with `group.protocol=consumer`",
    ),
    Restarted(
        name="FastStream, sticky",
        run="rebalances.contenders.faststream_peer:sticky",
        family="faststream",
        settings=(
            "`batch=True`, one task for each partition of the batch, `AckPolicy.MANUAL` with an "
            "`ack()` after each batch. Its rebalance listener waits for the batch. "
            "`StickyPartitionAssignor`, `session_timeout_ms` 45 s"
        ),
    ),
    Restarted(
        name="Java, classic",
        run="classic",
        family="java",
        settings=f"{_JAVA}. Its default assignors (range, then cooperative)",
    ),
    Restarted(
        name="Java, `consumer`",
        run="consumer",
        family="java",
        settings="The same with `group.protocol=consumer`",
    ),
)
