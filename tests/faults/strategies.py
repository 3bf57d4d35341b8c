"""The channels of the matrix: one a strategy, what is asked of each, and what each promises. Data,
and no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.checker import OK
from tests.faults.driver import Parcel
from tests.faults.history import Partition
from tests.faults.observer import ID_HEADER

COMMIT_INTERVAL_S = 0.3
PARTITIONS = 3
FAILED_TOO = frozenset({"ok", "failed"})
DELAYS_MS = (400, 800)
KEYS = 7
UNREADABLE = b"\xff\xfe no json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One channel.

    Attributes:
        name: Of the channel; also what its topics and groups begin with.
        config: Its lines of TOML; ``{run}`` becomes the name of the run.
        asks: Number of a record in its round of ``every`` -> what is asked of its handler; else
            "work". The rounds of the partitions are staggered.
        settles, releases, ordered, safe: As in :class:`tests.faults.checker.Rules`.
        commits: False: the group must not have any committed offset, and every start reads
            everything again.
        by_key: Its records are ordered by key, not by partition.
        timed: Topics that failed records go to, made beforehand so that they bear the broker's time
            of writing.
        dead_letters: Its dead-letter topic, whoever makes it.
        restarts: Its channel fails and comes back; where it fails while nobody takes commits, what
            it had done since the last one is repeated.
        unreadable_is_skipped: Records that cannot be read are settled by being ignored.
    """

    name: str
    config: str
    asks: Mapping[int, str] = field(default_factory=dict)
    every: int = 30
    settles: frozenset[str] = OK
    releases: frozenset[str] = OK
    ordered: bool = True
    safe: bool = True
    commits: bool = True
    by_key: bool = False
    timed: tuple[str, ...] = ()
    dead_letters: str = ""
    unreadable_is_skipped: bool = False
    restarts: bool = False

    def topic(self, run: str) -> str:
        return f"{self.name}-{run}"

    def retry_topics(self, run: str) -> list[str]:
        """In the order in which a record comes through them."""
        return [topic.format(run=run) for topic in self.timed if topic.rpartition("_")[2].isdigit()]

    def toml(self, run: str) -> str:
        """Its table of the configuration."""
        lines = self.config.format(run=run).strip()
        topic = self.topic(run)
        return f'[incoming.{self.name}]\ntopic = "{topic}"\ngroup_id = "{topic}"\n{lines}\n'

    def asked(self, number: int, partition: int) -> str:
        """What the record of a partition's round *number* asks for."""
        return self.asks.get((number + partition * self.every // PARTITIONS) % self.every, "work")

    def key(self, number: int) -> bytes | None:
        """Few keys, and some records without one."""
        return None if number % 11 == 0 else b"key-%d" % (number % KEYS)


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy(name="throttled", config='ordering = "unordered"', ordered=False),
        Strategy(name="latest", config='commit_strategy = "latest"'),
        Strategy(name="auto-commit", config="enable_auto_commit = true", safe=False),
        Strategy(name="never", config='commit_strategy = "ignore"', commits=False),
        Strategy(name="by-key", config='ordering = "key"', by_key=True),
        Strategy(name="two-consumers", config="consumers = 2"),
        Strategy(
            name="batch",
            config="""
                failure_strategy = "dead-letter-queue"
                dead_letter_queue.topic = "dead-batch-{run}"
                batch_max_records = 50
                batch_max_wait = "50ms"
            """,
            asks={7: "always", 19: "unreadable"},
            releases=FAILED_TOO,
            ordered=False,
            dead_letters="dead-batch-{run}",
        ),
        Strategy(
            name="retrying",
            config='retry = {{ max_attempts = 3, backoff = "50ms" }}',
            asks={5: "once"},
        ),
        Strategy(
            name="failing",
            config='restart = {{ backoff = "200ms", max_backoff = "1s", max_attempts = 1000 }}',
            asks={50: "once"},
            every=90,
            restarts=True,
        ),
        Strategy(
            name="skipping",
            config='failure_strategy = "ignore"',
            asks={7: "always", 19: "unreadable"},
            settles=FAILED_TOO,
            releases=FAILED_TOO,
            unreadable_is_skipped=True,
        ),
        Strategy(
            name="dead-letters",
            config="""
                commit_strategy = "latest"
                ordering = "unordered"
                failure_strategy = "dead-letter-queue"
                dead_letter_queue.topic = "dead-{run}"
            """,  # commits all the time, so that one that does not wait for a letter is seen
            asks={7: "always", 19: "unreadable"},
            releases=FAILED_TOO,
            ordered=False,
            timed=("dead-{run}",),
            dead_letters="dead-{run}",
        ),
        Strategy(
            name="delayed",
            config="""
                failure_strategy = "delayed-retry-topic"
                dead_letter_queue.topic = "dead-delayed-{run}"
                delayed_retry.topics = ["delayed-{run}_400", "delayed-{run}_800"]
            """,
            asks={7: "always", 19: "once"},
            releases=FAILED_TOO,
            timed=("delayed-{run}_400", "delayed-{run}_800"),
            dead_letters="dead-delayed-{run}",
        ),
    )
}

_CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"
auto_offset_reset = "earliest"
value_deserializer = "json"
commit_interval = "{interval}s"
concurrency = 8
drain_timeout = "10s"
"session.timeout.ms" = {session_ms}
"heartbeat.interval.ms" = 500

{channels}
[http]
port = {port}
"""


def config(
    bootstrap: str, run: str, strategies: Mapping[str, Strategy], port: int, session_ms: int
) -> str:
    """The configuration of a service that has all these channels."""
    return _CONFIG.format(
        bootstrap=bootstrap,
        interval=COMMIT_INTERVAL_S,
        session_ms=session_ms,
        channels="\n".join(strategy.toml(run) for strategy in strategies.values()),
        port=port,
    )


def parcel(strategy: Strategy, id: str, number: int, tp: Partition) -> Parcel:
    """The record that *strategy*'s topic gets in a round."""
    asked = strategy.asked(number, tp[1])
    value = UNREADABLE if asked == "unreadable" else json.dumps({"id": id, "do": asked}).encode()
    return Parcel(
        value, strategy.key(number), ((ID_HEADER, id.encode()), ("trace", b"t-%d" % number))
    )
