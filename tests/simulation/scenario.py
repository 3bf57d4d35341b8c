"""What happens in a run, drawn from its seed: settings, records and how their handlers behave, and
faults.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Mode = Literal["single", "batch", "manual", "iterate", "spark"]
Behaviour = Literal[
    "quick",
    "yields",
    "slow",
    "long",
    "flaky",
    "bad",
    "stuck",
    "cancels",
    "unreadable",
    "deaf",
    "kills",
    "worker",
    "breaks",
]
"""The last ones are Spark's: a job that no cancel ends, that ends its driver, or a Python worker,
or is bad code.
"""

FAULTS = (
    "commit-fails",
    "commit-lost",
    "commit-late",
    "slow-answer",
    "call-fails",
    "broker-down",
    "rebalance",
    "expire",
    "crash",
    "join",
    "leave",
    "stall",
    "wall-jump",
    "more-partitions",
    "send-fails",
    "compaction",
    "retention",
)
SPARK_FAULTS = ("driver-dies", "executors-away", "crash-after-write")
CONTROL = ("say", "seek", "pause", "commit-now", "commit-at", "pause-some", "pause-seek")
"""What the application does by itself, and is no fault."""
HARMLESS = frozenset(
    {
        "rebalance",
        "join",
        "leave",
        "wall-jump",
        "more-partitions",
        "send-fails",
        "compaction",
        "stop-start",
        *CONTROL,
    }
)
"""Done records are not repeated because of these."""

SPARK_SHARE = 0.25
OUTAGE_S = 12.0
"""A broker that is away for so long is seen to be."""
ANSWER_TIMEOUT_S = 2.0
TOPIC, GROUP, LETTERS = "orders", "billing", "dead-letter-topic-orders"
RETRY_TOPICS = ("orders_retry_500", "orders_retry_3000")
DELAYED_GROUP = f"kafka-delayed-retry-topic-{GROUP}"


Membership = Literal["eager", "cooperative", "consumer", "static", "mixed"]
"""How an application comes to its partitions: as a member of the classic protocol of one of two
kinds, as one of the consumer protocol, without a group, or each as another of these kinds of
members.
"""
COOPERATIVE_SHARE, CONSUMER_SHARE, STATIC_SHARE = 0.3, 0.35, 0.07
"""So many of the seeds have these; the others have eager members."""
MIXED_SHARE = 0.12
"""So many of all these that have a group have a mixed one."""
INCREMENTAL = frozenset({"cooperative", "consumer", "mixed"})
"""Rebalances of these move some partitions and leave the others. An eager member of a mixed group
says that it gives up all of its own.
"""


@dataclass(frozen=True, slots=True)
class Load:
    """A record to be produced, and what its handler does with it."""

    id: str
    at: float
    partition: int
    key: str | None
    behaviour: Behaviour
    # Of a flaky one: calls that raise before one succeeds.
    times: int
    takes_s: float
    headers: tuple[tuple[str, bytes | None], ...] = ()
    # What else its handler does: see odd_draw.py.
    odd: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done at a time, or at a number of calls between the application and its
    clients.
    """

    kind: str
    at: float
    # 0: at its time.
    at_call: int
    lasts_s: float
    times: int
    # Chooses among what is there.
    pick: float

    def __str__(self) -> str:
        when = f"at call {self.at_call}" if self.at_call else f"at {self.at:.1f} s"
        return f"{self.kind} {when}, {self.lasts_s:.1f} s, {self.times} times"


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that hold no record."""

    at: float
    partition: int
    count: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """One drawn run."""

    seed: int
    partitions: int
    members: int
    mode: Mode
    settings: Mapping[str, Any]
    loads: tuple[Load, ...]
    gaps: tuple[Gap, ...]
    faults: tuple[Fault, ...]
    lasts_s: float
    only_once: bool = field(default=False)
    # A Spark function rejects bad records; else it raises for them.
    rejects: bool = False
    # Positions live in a store.
    store: bool = False
    # Handlers keep a state there.
    states: bool = False
    # Handlers write there, together with the position.
    transactions: bool = False
    # The application supplies strings for the group.
    strings: bool = False
    # It seeks, pauses and commits by itself.
    control: bool = False
    # Nothing goes wrong, and all have the time that they need.
    graceful: bool = False
    membership: Membership = "eager"
    # What the application does while a partition is assigned.
    hooks: tuple[str, ...] = ()
    # Around its handlers: see around.py.
    middleware: bool = False
    # Some records are skipped.
    filters: bool = False
    # What skips them: a filter of "decoded" or "undecoded" messages, or their "headers".
    selects: str = "decoded"
    # How many handlers ``[limits.shared]`` lets run at once, if the channel has that limit.
    slots: int = 0
    # Handlers that share the records, or two that have all: see several_draw.py.
    several: str = ""

    @property
    def bisects(self) -> bool:
        """Failing Spark batches are split."""
        return bool(self.settings.get("spark", {}).get("on_failure") == "bisect")

    @property
    def kinds(self) -> frozenset[str]:
        """What it is called: its mode, and what it does with its offsets."""
        flags: dict[str, bool] = {
            "checkpoint": self.store,
            "states": self.states,
            "transactions": self.transactions,
            "strings": self.strings,
            "control": self.control,
            "keep": "keep_out_of_order_acks" in self.settings,
            "graceful": self.graceful,
            "latest": self.settings["auto_offset_reset"] == "latest",
            "middleware": self.middleware,
            "filter": self.filters,
            "bytes": "max_in_flight_bytes" in self.settings,
            "several": self.several == "shared",
            "broadcast": "aside" in self.several,
            "odd": bool(self.hooks) or any(load.odd for load in self.loads),
            "outage": any(
                fault.kind == "broker-down" and fault.lasts_s >= OUTAGE_S for fault in self.faults
            ),
            "pause": any(fault.kind.startswith("pause") for fault in self.faults),
            "limit": "rate_limit" in self.settings,
            "shared limit": bool(self.slots),
            "stops": any(fault.kind == "stop-start" for fault in self.faults)
            or "enabled" in self.settings,
            "every": "commit_every" in self.settings,
            "later": any(load.odd.startswith("later-") for load in self.loads),
            "timeout": "attempt_timeout" in self.settings,
            "cap": "concurrency_per_partition" in self.settings,
            "retention": any(fault.kind.startswith("retention") for fault in self.faults),
        }
        on = (name for name, is_on in flags.items() if is_on)
        return frozenset({self.mode, self.membership, *on})

    def words(self) -> Iterator[str]:
        """The scenario for people, a line each."""
        names = " ".join((self.mode, *sorted(self.kinds - {self.mode})))
        yield f"seed {self.seed}: {self.members} applications, {self.partitions} partitions, {names}"
        yield "  " + ", ".join(f"{name} = {value!r}" for name, value in self.settings.items())
        kinds: dict[str, int] = {}
        for load in self.loads:
            kinds[load.behaviour] = kinds.get(load.behaviour, 0) + 1
        amounts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield f"  {len(self.loads)} records in {self.lasts_s:.0f} s: {amounts}; {len(self.gaps)} gaps"
        for fault in self.faults:
            yield f"  {fault}"
        odd = sorted({*self.hooks, *(load.odd for load in self.loads if load.odd)})
        if odd:
            yield f"  odd: {' '.join(odd)}"


def draw(seed: int, features: frozenset[str]) -> Scenario:
    """The scenario of a seed; *features* are the settings that the code under test knows."""
    dice = random.Random(f"scenario {seed}")
    mode: Mode = dice.choices(["single", "batch", "manual", "iterate"], [6, 2, 2, 1])[0]  # type: ignore[assignment]
    # Of its own: the other seeds stay what they were.
    spark = random.Random(f"spark {seed}")
    if "spark" in features and spark.random() < SPARK_SHARE:
        mode = "spark"
    lasts_s = dice.uniform(6.0, 20.0)
    partitions = dice.choice([1, 1, 2, 3, 4, 6])
    settings = _settings(dice, mode, features)
    loads = tuple(_loads(dice, settings, partitions, lasts_s, mode))
    gaps = tuple(
        Gap(dice.uniform(0, lasts_s), dice.randrange(partitions), dice.choice([1, 1, 2, 5]))
        for _ in range(dice.choice([0, 0, 1, 3, 6]))
    )
    faults = tuple(
        _faults(dice, settings, lasts_s, features, SPARK_FAULTS if mode == "spark" else ())
    )
    members = dice.choice([1, 1, 2, 3])
    rejects = mode == "spark" and spark.random() < 0.3
    return Scenario(
        seed, partitions, members, mode, settings, loads, gaps, faults, lasts_s, rejects=rejects
    )


def with_assignment(scenario: Scenario) -> Scenario:
    """The scenario, with its membership; by dice of its own, so the other seeds stay what they
    were.
    """
    drawn = random.Random(f"assignment {scenario.seed}").random()
    is_static = 0 <= drawn - COOPERATIVE_SHARE - CONSUMER_SHARE < STATIC_SHARE
    if not is_static and random.Random(f"mixed {scenario.seed}").random() < MIXED_SHARE:
        return _mixed(scenario)
    if drawn < COOPERATIVE_SHARE:
        return replace(scenario, membership="cooperative")
    if drawn < COOPERATIVE_SHARE + CONSUMER_SHARE:
        return replace(scenario, membership="consumer")
    if drawn < COOPERATIVE_SHARE + CONSUMER_SHARE + STATIC_SHARE:
        return _static(scenario)
    return scenario


def _mixed(scenario: Scenario) -> Scenario:
    """The scenario, with a rolling restart: applications come and go, each of another kind.

    Nothing is promised to be graceful there: with the last member of the consumer protocol the
    others may lose their partitions.
    """
    dice = random.Random(f"rolling restart {scenario.seed}")
    faults = [
        Fault(kind, dice.uniform(0.5, scenario.lasts_s), 0, 0.0, 1, dice.random())
        for kind in ("join", "leave") * dice.choice([1, 2, 4])
    ]
    return replace(scenario, membership="mixed", faults=(*scenario.faults, *faults), graceful=False)


def member_kind(scenario: Scenario, who: str) -> Literal["eager", "cooperative", "consumer"]:
    """The kind of members that an application has."""
    if scenario.membership == "mixed":
        kinds: list[Literal["eager", "cooperative", "consumer"]] = ["eager", "cooperative"]
        dice = random.Random(f"kind {scenario.seed} {who}")
        return "consumer" if dice.random() < 0.5 else dice.choice(kinds)
    return "eager" if scenario.membership == "static" else scenario.membership


def protocol_of(seed: int) -> str:
    """The group protocol of a seed of another world; by dice of its own, too."""
    return random.Random(f"protocol {seed}").choice(("classic", "consumer"))


def _static(scenario: Scenario) -> Scenario:
    """The scenario, with one application that reads all partitions without joining a group.

    Nobody shares them: two would both read them all.
    """
    settings = {**scenario.settings, "assign": [f"{TOPIC}:*"]}
    settings.pop("consumers", None)
    faults = tuple(fault for fault in scenario.faults if fault.kind != "join")
    faults += tuple(_stops_while_a_commit_is_late(scenario))
    return replace(scenario, membership="static", members=1, settings=settings, faults=faults)


def _stops_while_a_commit_is_late(scenario: Scenario) -> Iterator[Fault]:
    """For some of the static ones: nobody refuses what comes late from the client before."""
    dice = random.Random(f"stops while a commit is late {scenario.seed}")
    if dice.random() < 0.5 and not scenario.graceful:
        at = dice.uniform(0.5, scenario.lasts_s / 2)
        yield Fault("commit-late", at, 0, dice.choice([4.0, 6.0]), 1, dice.random())
        yield Fault("stop-start", at + dice.uniform(0.1, 3.0), 0, 0.0, 1, dice.random())


def _settings(dice: random.Random, mode: Mode, features: frozenset[str]) -> dict[str, Any]:
    def some(name: str, *choices: Any) -> Any:
        known = [
            choice
            for choice in choices
            if choice in (choices[0],) or f"{name}={choice}" in features
        ]
        return dice.choice(known)

    concurrency = dice.choice([1, 1, 2, 4, 16])
    settings: dict[str, Any] = {
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "commit_strategy": some(
            "commit_strategy", "throttled", "throttled", "throttled", "latest", "ignore"
        ),
        "commit_interval": dice.choice([0.1, 0.5, 1.0, 3.0]),
        "failure_strategy": some(
            "failure_strategy",
            "fail",
            "ignore",
            "dead-letter-queue",
            "dead-letter-queue",
            "delayed-retry-topic",
        ),
        "on_poison": some("on_poison", "fail", "pause-partition", "warn", "dead-letter-queue"),
        "unprocessed_record_max_age": dice.choice([0, 4.0, 8.0, 30.0]),
        "concurrency": concurrency,
        "max_in_flight": max(concurrency, dice.choice([1, 2, 5, 20, 100, 1000])),
        "revoke_grace": dice.choice([0, 0.5, 2.0, 5.0]),
        "drain_timeout": dice.choice([0.5, 2.0, 10.0]),
    }
    if mode == "batch":
        settings["batch_max_records"] = dice.choice([1, 3, 10])
        settings["batch_max_wait"] = dice.choice([0, 0.05, 0.5])
        settings["max_in_flight"] = max(
            settings["max_in_flight"], settings["batch_max_records"] * concurrency
        )
        settings["ordering"] = dice.choice(["partition", "unordered"])
    elif mode == "iterate":
        settings["concurrency"] = 1
    elif mode == "spark":
        _of_spark(dice, settings)
    else:
        settings["ordering"] = some("ordering", "partition", "partition", "unordered", "key", "key")
    if mode not in ("iterate", "spark"):
        attempts = dice.choice([1, 1, 2, 3])
        settings["retry"] = {
            "max_attempts": attempts,
            "backoff": dice.choice([0, 0.05, 0.5]),
            "max_backoff": 1.0,
        }
    if mode == "manual":
        settings["ack"] = "manual"
    elif mode == "single" and dice.random() < 0.08:
        settings["ack"] = "pre"
    _strategies(dice, settings, features)
    if "consumers" in features and dice.random() < 0.25:
        settings["consumers"] = min(dice.choice([2, 3]), settings["max_in_flight"])
    return settings


def _of_spark(dice: random.Random, settings: dict[str, Any]) -> None:
    """The ``spark`` table, and what goes with it."""
    table: dict[str, Any] = {
        "mode": dice.choice(["records", "ranges"]),
        "batch_max_records": dice.choice([1, 3, 10, 30]),
        "batch_max_wait": dice.choice([0, 0.05, 0.5]),
        "timeout": dice.choice([1.5, 3.0, 6.0]),
        "max_concurrent_jobs": dice.choice([1, 1, 2, 3]),
        "on_failure": dice.choice(["nack", "bisect"]),
    }
    room = table["batch_max_records"] * table["max_concurrent_jobs"]
    settings["spark"] = table
    settings["ordering"] = dice.choice(["partition", "unordered"])
    settings["max_in_flight"] = room * dice.choice([1, 2, 5])
    del settings["concurrency"]


def _strategies(dice: random.Random, settings: dict[str, Any], features: frozenset[str]) -> None:
    """What some of the settings need besides."""
    if settings["commit_strategy"] == "ignore" and settings["on_poison"] in (
        "pause-partition",
        "dead-letter-queue",
    ):
        # No record becomes poison there, and the configuration says so.
        settings["on_poison"] = "warn"
    if settings["on_poison"] == "dead-letter-queue":
        settings["unprocessed_record_max_age"] = settings["unprocessed_record_max_age"] or 4.0
    if settings["commit_strategy"] == "latest" and "spark" not in settings and dice.random() < 0.2:
        settings["commit_latest_unsafe"] = True
    if settings["failure_strategy"] == "delayed-retry-topic":
        settings["delayed_retry"] = {
            "topics": list(RETRY_TOPICS),
            "max_retries": 2,
            "timeout": 300.0,
        }
    if "restart" in features and dice.random() < 0.3:
        settings["restart"] = {"backoff": 0.2, "max_backoff": 2.0, "max_attempts": 5}


def _loads(
    dice: random.Random, settings: Mapping[str, Any], partitions: int, lasts_s: float, mode: Mode
) -> Iterator[Load]:
    count = dice.choice([10, 30, 60, 120])
    keys = [*[f"k{number}" for number in range(dice.choice([1, 3, 12]))], None]
    strange: list[Behaviour] = dice.sample(_strange(settings, mode), k=dice.choice([0, 1, 1, 2]))
    share = dice.choice([0.02, 0.05, 0.15]) if settings["failure_strategy"] != "fail" else 0.03
    is_hot = dice.random() < 0.3
    for number in range(count):
        behaviour: Behaviour = dice.choices(["quick", "yields", "slow"], [5, 3, 2])[0]  # type: ignore[assignment]
        if strange and dice.random() < share:
            behaviour = dice.choice(strange)
        key = keys[0] if is_hot and dice.random() < 0.7 else dice.choice(keys)
        takes_s = (
            dice.uniform(3.0, 12.0) if behaviour == "long" else dice.choice([0.01, 0.05, 0.3, 1.0])
        )
        at = dice.choice([0.0, lasts_s * 0.3]) if dice.random() < 0.4 else dice.uniform(0, lasts_s)
        partition = hash_of(key) % partitions if key is not None else dice.randrange(partitions)
        yield Load(f"r{number}", at, partition, key, behaviour, dice.choice([1, 1, 2, 4]), takes_s)


def _strange(settings: Mapping[str, Any], mode: Mode) -> list[Behaviour]:
    kinds: list[Behaviour] = ["long", "flaky", "stuck"]
    if mode == "spark":
        kinds += ["deaf", "kills", "worker"]
        return kinds + (["bad", "bad", "breaks"] if settings["failure_strategy"] != "fail" else [])
    if mode == "single":
        kinds.append("cancels")
    if settings["failure_strategy"] != "fail":
        kinds += ["bad", "unreadable"]
    if settings.get("ack") == "pre":
        kinds = ["long", "flaky"]
    return kinds


def hash_of(key: str) -> int:
    """The same in every process."""
    return sum(key.encode()) * 31


def _faults(
    dice: random.Random,
    settings: Mapping[str, Any],
    lasts_s: float,
    features: frozenset[str],
    more: Sequence[str],
) -> Iterator[Fault]:
    kinds = [*(kind for kind in FAULTS if f"fault={kind}" in features), *more, *more]
    if settings["failure_strategy"] not in ("dead-letter-queue", "delayed-retry-topic"):
        kinds.remove("send-fails")
    for _ in range(dice.choice([0, 1, 2, 3, 4, 6, 8])):
        yield Fault(
            dice.choice(kinds),
            dice.uniform(0.2, lasts_s),
            dice.randrange(1, 250) if dice.random() < 0.5 else 0,
            dice.choice([0.05, 0.5, 1.5, 3.0, 7.0, 15.0]),
            dice.choice([1, 1, 2, 5]),
            dice.random(),
        )
