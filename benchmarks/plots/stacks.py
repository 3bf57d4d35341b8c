"""Whole stacks, sampled as CPU time passes, and to which stage of a record's way each sample
belongs.
"""

from __future__ import annotations

import dis
import inspect
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

SAMPLE_EVERY_S = 0.001
RESUME = dis.opmap["RESUME"]
ROOT = Path(__file__).resolve().parents[2]

STAGES = (
    "fetch and parse",
    "tracker",
    "dispatch",
    "handler",
    "commit",
    "metrics and health",
    "channel",
    "event loop",
)
"""In the order of the colours."""

FETCH, TRACKER, DISPATCH, HANDLER, COMMIT, METRICS, CHANNEL, LOOP = STAGES

MOVED = (
    ("reactive_kafka/commit/metadata/", TRACKER),
    ("reactive_kafka/commit/tracker.py", TRACKER),
    ("reactive_kafka/commit/window.py", TRACKER),
    ("reactive_kafka/partitions/fetcher.py", TRACKER),
    ("reactive_kafka/partitions/budget.py", TRACKER),
    ("reactive_kafka/partitions/committer.py", COMMIT),
    ("reactive_kafka/partitions/engine.py", COMMIT),
)
"""Where code was when the kept figures were measured: they name files by their old paths."""

FOLDERS = (
    ("aiokafka/", FETCH),
    ("reactive_kafka/broker/", FETCH),
    ("reactive_kafka/fetching/", TRACKER),
    ("reactive_kafka/tracking/", TRACKER),
    ("reactive_kafka/commit/", COMMIT),
    ("reactive_kafka/delivery/", DISPATCH),
    ("reactive_kafka/verdicts/", DISPATCH),
    ("reactive_kafka/formats/", DISPATCH),
    ("reactive_kafka/observe/", METRICS),
    ("reactive_kafka/http/", METRICS),
    ("reactive_kafka/", CHANNEL),
)
"""Where the code of a stage lies; the first that fits counts."""

THE_HANDLER = re.compile(r"benchmarks/.*\.handle$")

TURN = "asyncio/base_events.py:BaseEventLoop._run_once"

Stack = tuple[str, ...]
"""From the outermost function to the innermost, each as ``folder/file.py:function``."""


class Sampler:
    """Counts the stacks that were found each millisecond of CPU time, or as often as the kernel
    ticks.
    """

    def __init__(self) -> None:
        self.stacks: Counter[Stack] = Counter()

    def start(self) -> None:
        """From now on."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_EVERY_S, SAMPLE_EVERY_S)

    def stop(self) -> None:
        """No more."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        # The interpreter looks for signals where a function begins, and in few other places. What
        # it finds there has passed in the caller; with a coroutine most of that is making it, so
        # that is told as the coroutine's.
        if frame is not None and frame.f_back is not None and _is_just_entered(frame):
            frame = frame.f_back
        self.stacks[within_a_turn(tuple(reversed([*_names(frame)])))] += 1


def _is_just_entered(frame: FrameType) -> bool:
    code = frame.f_code
    return not code.co_flags & inspect.CO_COROUTINE and code.co_code[frame.f_lasti] == RESUME


def within_a_turn(stack: Stack) -> Stack:
    """Without what is around each turn of the event loop."""
    return stack[len(stack) - stack[::-1].index(TURN) :] if TURN in stack else stack


def _names(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield f"{shortened(frame.f_code.co_filename)}:{frame.f_code.co_qualname}"
        frame = frame.f_back


def shortened(file: str) -> str:
    """A path without what lies above the package that it belongs to."""
    path = Path(file)
    if "site-packages" in path.parts:
        return "/".join(path.parts[path.parts.index("site-packages") + 1 :])
    if path.is_relative_to(ROOT):
        return path.relative_to(ROOT).as_posix()
    return "/".join(path.parts[-2:])


def stage_of(stack: Stack) -> str:
    """That of the innermost function which belongs to one: libraries work for whom they were called
    by.
    """
    for name in reversed(stack):
        if THE_HANDLER.match(name):
            return HANDLER
        for folder, stage in (*MOVED, *FOLDERS):
            if name.startswith(folder):
                return stage
    return LOOP


def by_stage(stacks: Mapping[Stack, int]) -> dict[str, float]:
    """stage -> its share of all samples."""
    counts = Counter[str]()
    for stack, count in stacks.items():
        counts[stage_of(stack)] += count
    return {stage: counts[stage] / (counts.total() or 1) for stage in STAGES}


def folded(stacks: Mapping[Stack, int]) -> dict[str, int]:
    """For a file: one text a stack."""
    return {";".join(stack): count for stack, count in sorted(stacks.items())}


def unfolded(texts: Mapping[str, int]) -> dict[Stack, int]:
    """Out of a file."""
    return {tuple(text.split(";")): count for text, count in texts.items()}


def without_rare(stacks: Mapping[Stack, int], least: float) -> Counter[Stack]:
    """The stacks, with each sample at a function that has at least this share of all.

    A flame graph has no room for the others, and they would be most of the file.
    """
    total = sum(stacks.values())
    within = Counter[Stack]()
    for stack, count in stacks.items():
        for depth in range(len(stack) + 1):
            within[stack[:depth]] += count
    kept = Counter[Stack]()
    for stack, count in stacks.items():
        rest = stack
        while rest and within[rest] < least * total:
            rest = rest[:-1]
        kept[rest] += count
    return kept


@dataclass(slots=True)
class Node:
    """A function as it was called on one way: its samples, with those of what it has called."""

    name: str
    stage: str
    count: int
    calls: dict[str, Node]


def tree(stacks: Mapping[Stack, int]) -> Node:
    """All stacks as one tree; its root is all of them."""
    root = Node("all", LOOP, 0, {})
    for stack, count in stacks.items():
        node = root
        node.count += count
        for depth, name in enumerate(stack):
            node = node.calls.setdefault(name, Node(name, stage_of(stack[: depth + 1]), 0, {}))
            node.count += count
    return root
