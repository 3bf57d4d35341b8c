"""The commit strategies, built-in and custom: when a channel commits, how far. No I/O, no clock."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, Protocol

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.user_objects import load_strategy, made_strategy
from reactive_kafka.records import TopicPartition

BUILT_IN = ("throttled", "latest", "ignore", "checkpoint")


class Progress(NamedTuple):
    """How far one partition has come.

    Attributes:
        partition: Which one.
        committed: What the group has stored for it; None if nothing.
        safe: The highest position with no unsettled record before it.
        highest: The position after the highest settled record, whatever lies before it; *safe* or
            higher.
        is_last: The partition is about to go: the next owner handles again what is not committed
            now.
    """

    partition: TopicPartition
    committed: int | None
    safe: int
    highest: int
    is_last: bool = False


class CommitStrategy(Protocol):
    """Decides when a channel commits, and which positions.

    The built-in strategies are classes of this protocol, too. A custom one is named by
    ``commit_strategy = "module:object"``: an instance, or a class or function that makes one when
    it is called with the channel's :class:`~reactive_kafka.config.settings.IncomingSettings`. All
    partitions of the channel share it. It is called on the event loop and must not block.

    Attributes:
        interval_s: How often it is asked, in seconds; None: only when a record settles, and at the
            end.
        commits_at_ack: It is asked as soon as a record settles; or when the commit that is on its
            way is over.
    """

    @property
    def interval_s(self) -> float | None:
        """How often it is asked, in seconds. None: only when a record settles, and at the end."""

    @property
    def commits_at_ack(self) -> bool:
        """True: it is also asked as soon as a record settles, unless a commit is on its way."""

    def position(self, progress: Progress, now: float) -> int | None:
        """The position to commit; None: nothing now.

        It is asked about partitions in which something new can be committed. Its answer cannot pass
        an unsettled record: more than ``safe`` counts as ``safe``. A position that is committed
        already, or a lower one, is no commit.

        Args:
            now: Seconds, by the monotonic clock.
        """


class ThrottledCommits:
    """``throttled``: every *interval_s*, commits the highest position without a gap before it."""

    commits_at_ack = False

    def __init__(self, interval_s: float) -> None:
        self.interval_s: float | None = interval_s

    def position(self, progress: Progress, now: float) -> int | None:
        return progress.safe


class LatestCommits:
    """``latest``: commits at each ack, one request at a time.

    Acks that come while a request is on its way go with the next one.
    """

    commits_at_ack = True

    def __init__(self, interval_s: float, *, is_unsafe: bool = False) -> None:
        # Positions move without an ack too: past markers behind the last record.
        self.interval_s: float | None = interval_s
        # Commit past unsettled records: after a crash these are lost.
        self.is_unsafe = is_unsafe

    def position(self, progress: Progress, now: float) -> int | None:
        return progress.highest if self.is_unsafe else progress.safe


class NoCommits:
    """``ignore``: commits nothing. Acks only make room for the next records.

    With ``enable_auto_commit`` the client commits by itself.
    """

    interval_s: float | None = None
    commits_at_ack = False

    def position(self, progress: Progress, now: float) -> int | None:
        return None


def strategy_for(settings: IncomingSettings) -> CommitStrategy:
    """The commit strategy of a channel.

    Raises:
        ConfigError: A custom one cannot be loaded, or is no commit strategy.
    """
    name = settings.commit_strategy
    interval_s = settings.commit_interval_s
    if name in ("throttled", "checkpoint"):
        return ThrottledCommits(interval_s)
    if name == "latest":
        return LatestCommits(interval_s, is_unsafe=settings.commit_latest_unsafe)
    if name == "ignore":
        return NoCommits()
    try:
        strategy = made_strategy(load_custom(settings), "position", settings)
    except FormatError as error:
        raise ConfigError(f"{_place(settings)}: {error}") from error
    if wrong := _what_is_wrong(strategy):
        raise ConfigError(
            f"{_place(settings)}: not a commit strategy, {type(strategy).__name__}.{wrong}"
        )
    checked: CommitStrategy = strategy
    return checked


def load_custom(settings: IncomingSettings) -> Any:
    """The custom strategy that a channel names, or what makes it; None: it is a built-in one.

    Raises:
        ConfigError: It cannot be loaded.
    """
    name = settings.commit_strategy
    if name in BUILT_IN:
        return None
    try:
        if ":" not in name:
            raise FormatError("there is no such strategy")
        return load_strategy(name, "position")
    except FormatError as error:
        allowed = f"{', '.join(BUILT_IN)} or module:object"
        raise ConfigError(f"{_place(settings)}: {error}; allowed: {allowed}") from error


def _what_is_wrong(strategy: Any) -> str | None:
    missing = [
        name for name in ("position", "interval_s", "commits_at_ack") if not hasattr(strategy, name)
    ]
    if missing:
        return f"{missing[0]} is missing"
    if not callable(strategy.position) or inspect.iscoroutinefunction(strategy.position):
        return "position must be a plain function of (progress, now)"
    interval_s = strategy.interval_s
    is_number = isinstance(interval_s, int | float) and not isinstance(interval_s, bool)
    if interval_s is not None and not (is_number and 0 < interval_s < float("inf")):
        return f"interval_s = {interval_s!r}: allowed are seconds above 0, or None"
    if not isinstance(strategy.commits_at_ack, bool):
        return f"commits_at_ack = {strategy.commits_at_ack!r}: allowed are True and False"
    return None


def _place(settings: IncomingSettings) -> str:
    return settings.place("commit_strategy", settings.commit_strategy)
