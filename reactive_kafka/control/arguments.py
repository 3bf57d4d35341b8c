"""Reads the arguments of actions from JSON objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reactive_kafka.dead_letters.letters import LetterOrigin
from reactive_kafka.http.action_requests import ActionError
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import TopicPartition

PAUSED = "paused by an operator"
"""The reason of a pause where none is given."""
MOST_TEXT = 200
"""How many characters the reason of a new pause or a logger may have."""
MOST_TOPIC = 249
"""How many characters the name of a topic may have. Source: Kafka's ``Topic.MAX_NAME_LENGTH``."""
MOST_OFFSET = 2**63 - 1
MOST_PARTITION = 2**31 - 1

LAST_LETTERS = 20
MOST_LETTERS = 1_000
"""How many dead letters are read: by default, and at most."""

LEVELS = ("debug", "info", "warning", "error", "critical", "notset")

_ENDS = ("beginning", "end")
_WHERE = (
    'one of "offset" (a number, "beginning" or "end") and "timestamp" (a time with its zone, such '
    'as "2026-11-21T08:00:00Z", or milliseconds since 1970)'
)


@dataclass(frozen=True, slots=True)
class PauseArguments:
    """What to pause or to resume, and why."""

    reason: str
    # None: the whole channel.
    partition: TopicPartition | None


@dataclass(frozen=True, slots=True)
class SeekArguments:
    """Where to read on."""

    topic: str
    # None: all partitions of the topic that the channel has.
    partition: int | None
    where: int | str | datetime


@dataclass(frozen=True, slots=True)
class SkipArguments:
    """Which record to skip."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LogLevelArguments:
    """Which logger gets which level."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True)
class ReplayArguments:
    """How many dead letters go where."""

    # None: each goes back to its own topic.
    to: str | None
    # None: all of them.
    limit: int | None
    # The partition and the offset of a single letter. None: all that were not replayed before.
    only: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class LettersArguments:
    """Which dead letters to read."""

    # The newest so many.
    last: int
    # Of these only the letters of this record. None: all.
    origin: LetterOrigin | None


@dataclass(frozen=True, slots=True)
class RecordArguments:
    """Which record to look for."""

    partition: TopicPartition
    offset: int
    # None: in all channels.
    channel: str | None


class Arguments:
    """The arguments of one action; each method reads one, or raises an ActionError."""

    def __init__(self, action: str, given: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
        self._action = action
        self._given = given
        unknown = [name for name in given if name not in allowed]
        if unknown:
            known = ", ".join(f'"{name}"' for name in allowed) or "no arguments"
            raise ActionError(
                400, f"{action}: unknown argument {_shown(unknown[0])}; allowed are {known}"
            )

    def has(self, name: str) -> bool:
        """Return whether an argument is given."""
        return self._given.get(name) is not None

    def text(self, name: str, default: str | None = None, *, most: int = MOST_TEXT) -> str:
        """Return a line of text of at most *most* characters."""
        value = self._given.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not 0 < len(value) <= most:
            raise self._wrong(name, f"a string of 1 to {most} characters")
        return value

    def any_text(self, name: str, default: str) -> str:
        """Return a text of any length."""
        value = self._given.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def number(self, name: str, most: int, least: int = 0) -> int:
        """Return a whole number."""
        value = self._given.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, f"a whole number from {least} to {most}")
        return value

    def _wrong(self, name: str, allowed: str) -> ActionError:
        if name not in self._given:
            return ActionError(400, f'{self._action}: "{name}" is missing: {allowed}')
        value = _shown(self._given[name])
        return ActionError(400, f'{self._action}: "{name}" = {value}: {allowed} is wanted')

    def topic(self, name: str = "topic") -> str:
        """Return the name of a topic."""
        return self.text(name, most=MOST_TOPIC)

    def partition(self) -> TopicPartition:
        """Return a partition."""
        return TopicPartition(self.topic(), self.number("partition", MOST_PARTITION))

    def where(self) -> int | str | datetime:
        """Return where to seek to."""
        if self.has("offset") == self.has("timestamp"):
            raise ActionError(400, f"{self._action}: {_WHERE} is wanted")
        if self.has("timestamp"):
            return self._moment()
        offset = self._given["offset"]
        if isinstance(offset, str):
            if offset not in _ENDS:
                raise self._wrong("offset", 'a number, "beginning" or "end"')
            return offset
        return self.number("offset", MOST_OFFSET)

    def _moment(self) -> datetime:
        given = self._given["timestamp"]
        allowed = "a time with its zone (2026-11-21T08:00:00Z), or milliseconds since 1970"
        try:
            if isinstance(given, str):
                moment = datetime.fromisoformat(given)
            elif isinstance(given, int) and not isinstance(given, bool) and given >= 0:
                moment = datetime.fromtimestamp(given / 1000, UTC)
            else:
                raise self._wrong("timestamp", allowed)
        except (ValueError, OverflowError, OSError) as error:
            raise self._wrong("timestamp", allowed) from error
        if moment.tzinfo is None:
            raise self._wrong("timestamp", allowed)
        return moment


_OF_PAUSES = ("reason", "topic", "partition")


def pause_arguments(action: str, given: Mapping[str, Any]) -> PauseArguments:
    """Read the arguments of a pause."""
    arguments = Arguments(action, given, _OF_PAUSES)
    return _pause_arguments(arguments, arguments.text("reason", PAUSED))


def resume_arguments(action: str, given: Mapping[str, Any]) -> PauseArguments:
    """Read the arguments of the end of a pause.

    The application's code may have paused for any reason, also for one that is too long here.
    """
    arguments = Arguments(action, given, _OF_PAUSES)
    return _pause_arguments(arguments, arguments.any_text("reason", PAUSED))


def _pause_arguments(arguments: Arguments, reason: str) -> PauseArguments:
    if not (arguments.has("topic") or arguments.has("partition")):
        return PauseArguments(reason, None)
    return PauseArguments(reason, arguments.partition())


def seek_arguments(action: str, given: Mapping[str, Any]) -> SeekArguments:
    """Read the arguments of a seek."""
    arguments = Arguments(action, given, ("topic", "partition", "all", "offset", "timestamp"))
    topic = arguments.topic()
    is_for_all = given.get("all") is True or given.get("partition") == "all"
    if is_for_all and arguments.has("all") and arguments.has("partition"):
        raise ActionError(400, 'seek: "all" and "partition" exclude each other: leave one out')
    partition = None
    if not is_for_all:
        if not arguments.has("partition"):
            raise ActionError(400, 'seek: "partition" is missing: a number, or "all"')
        partition = arguments.number("partition", MOST_PARTITION)
    return SeekArguments(topic, partition, arguments.where())


def skip_arguments(action: str, given: Mapping[str, Any]) -> SkipArguments:
    """Read the arguments of a skip."""
    arguments = Arguments(action, given, ("topic", "partition", "offset"))
    return SkipArguments(arguments.partition(), arguments.number("offset", MOST_OFFSET))


def log_level_arguments(action: str, given: Mapping[str, Any]) -> LogLevelArguments:
    """Read the arguments of a change of a log level."""
    arguments = Arguments(action, given, ("logger", "level"))
    level = arguments.text("level").lower()
    if level not in LEVELS:
        raise ActionError(
            400, f'{action}: "level" = {_shown(given["level"])}: allowed are {", ".join(LEVELS)}'
        )
    return LogLevelArguments(arguments.text("logger", "reactive_kafka"), level)


def replay_arguments(action: str, given: Mapping[str, Any]) -> ReplayArguments:
    """Read the arguments of a replay of dead letters."""
    arguments = Arguments(action, given, ("to", "limit", "partition", "offset"))
    to = arguments.topic("to") if arguments.has("to") else None
    limit = arguments.number("limit", 2**31 - 1, least=1) if arguments.has("limit") else None
    if not (arguments.has("partition") or arguments.has("offset")):
        return ReplayArguments(to, limit, None)
    if limit is not None:
        raise ActionError(400, 'replay: "limit" and "offset" exclude each other: leave one out')
    partition = arguments.number("partition", MOST_PARTITION)
    return ReplayArguments(to, None, (partition, arguments.number("offset", MOST_OFFSET)))


def letters_arguments(query: Mapping[str, str]) -> LettersArguments:
    """Read the query of a look at dead letters: ``last``, and the record that they come from."""
    given = _with_numbers(query, ("last", "partition", "offset"))
    arguments = Arguments("letters", given, ("last", "topic", "partition", "offset"))
    last = LAST_LETTERS
    if arguments.has("last"):
        last = arguments.number("last", MOST_LETTERS, least=1)
    if not any(arguments.has(name) for name in ("topic", "partition", "offset")):
        return LettersArguments(last, None)
    place = arguments.partition()
    return LettersArguments(last, LetterOrigin(place, arguments.number("offset", MOST_OFFSET)))


def record_arguments(query: Mapping[str, str]) -> RecordArguments:
    """Read the query of a look for one record."""
    given = _with_numbers(query, ("partition", "offset"))
    arguments = Arguments("record", given, ("topic", "partition", "offset", "channel"))
    place = arguments.partition()
    offset = arguments.number("offset", MOST_OFFSET)
    channel = arguments.text("channel") if arguments.has("channel") else None
    return RecordArguments(place, offset, channel)


def _with_numbers(query: Mapping[str, str], names: tuple[str, ...]) -> dict[str, Any]:
    """Return a query with the numbers in it, which are texts there."""
    given: dict[str, Any] = dict(query)
    for name in names:
        text = given.get(name, "")
        # The longest number that is allowed has 19 digits.
        if text.isascii() and text.isdecimal() and len(text) < 20:
            given[name] = int(text)
    return given


def no_arguments(action: str, given: Mapping[str, Any]) -> None:
    """Check that an action that takes no arguments gets none."""
    Arguments(action, given, ())


def _shown(value: object) -> str:
    return one_line(repr(value), limit=80)
