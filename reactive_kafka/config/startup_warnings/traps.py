"""Warns of what is allowed and probably not meant: ignored files, misspelt variables, groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import SIDES
from reactive_kafka.config.config_files import FILE_VARIABLE
from reactive_kafka.config.kinds import did_you_mean
from reactive_kafka.config.layers import PREFIX, PROFILE_VARIABLE, VARIABLE
from reactive_kafka.config.settings import IncomingSettings, Settings, subscription_of
from reactive_kafka.subscription import Partitions, Pattern, Subscription

DEFAULT_FILE = "reactive-kafka.toml"
OURS = "REACTIVE_KAFKA_"
SERVERS_VARIABLE = "REACTIVE_KAFKA_BOOTSTRAP_SERVERS"
"""The commands that have ``--bootstrap-servers`` read this variable. Applications do not."""
VARIABLES = frozenset(
    {
        FILE_VARIABLE,
        PROFILE_VARIABLE,
        SERVERS_VARIABLE,
        "REACTIVE_KAFKA_APP_DIR",
        "REACTIVE_KAFKA_BROKER_KIND",
        "REACTIVE_KAFKA_BROKER_PORT",
        "REACTIVE_KAFKA_CACHE",
        "REACTIVE_KAFKA_EXIT_ON_FAILURE",
        "REACTIVE_KAFKA_LOG_CONFIG",
        "REACTIVE_KAFKA_LOG_FORMAT",
        "REACTIVE_KAFKA_LOG_LEVEL",
        "REACTIVE_KAFKA_PORT",
        "REACTIVE_KAFKA_TEST_BOOTSTRAP",
        "REACTIVE_KAFKA_TOKEN_FILE",
        "REACTIVE_KAFKA_WORKERS",
    }
)
"""The variables with single underscores that something of this package reads."""
_OF_KUBERNETES = re.compile(r"SERVICE_(HOST|PORT(_.+)?)|PORT_\d+_(TCP|UDP|SCTP)(_.+)?")
"""What Kubernetes sets in every pod, if there is a Service called reactive-kafka."""
MOST_CHANNELS_NAMED = 3


def traps(
    settings: Settings,
    environ: Mapping[str, str],
    paths: Sequence[Path],
    *,
    has_tables: bool,
) -> Iterator[str]:
    """Return the warnings, one line each.

    Args:
        settings: The configuration.
        environ: The environment.
        paths: The files that were read.
        has_tables: Tables made in code are the configuration, or part of it.
    """
    yield from _ignored_files(environ, paths, has_tables=has_tables)
    yield from _unread_variables(settings, environ)
    yield from shared_groups(settings.incoming.values())


def _ignored_files(
    environ: Mapping[str, str], paths: Sequence[Path], *, has_tables: bool
) -> Iterator[str]:
    """Warn of a file that looks like the configuration and is not read."""
    named = environ.get(FILE_VARIABLE)
    if named and Path(named) not in paths:
        instead = ", ".join(map(str, paths)) or "App({...}), which has tables"
        yield (
            f"{VARIABLE}{FILE_VARIABLE} = {named!r}: not read: the configuration is that of "
            f"{instead}"
        )
    elif has_tables and not paths and Path(DEFAULT_FILE).exists():
        why = (
            "not read: App({...}) has tables, which are the whole configuration; App() would read "
            "the file"
        )
        yield f"{Path(DEFAULT_FILE).absolute()}: {why}"


def _unread_variables(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Warn of variables that look like ours and that nothing reads.

    Their values may be secrets, so they are not shown.
    """
    # Made only for the first such variable, because settings have thousands of spellings.
    spellings: dict[str, str] | None = None
    for variable in environ:
        in_capitals = variable.upper()
        if not in_capitals.startswith(OURS) or in_capitals.startswith(PREFIX):
            continue
        rest = in_capitals.removeprefix(OURS)
        if _OF_KUBERNETES.fullmatch(rest):
            continue
        if variable == SERVERS_VARIABLE:
            if environ[variable] != settings.bootstrap_servers:
                yield (
                    f"{VARIABLE}{variable}: not read: it is for commands such as `lag`; an "
                    f"application reads {PREFIX}KAFKA__BOOTSTRAP_SERVERS"
                )
            continue
        if variable in VARIABLES:
            continue
        if spellings is None:
            spellings = dict(_spellings(settings))
        yield f"{VARIABLE}{variable}: not read; {_meant_variable(rest, spellings)}"


def _meant_variable(rest: str, spellings: Mapping[str, str]) -> str:
    """Return which variable was probably meant by one whose name ends in *rest*."""
    setting = spellings.get(re.sub("_+", "_", rest))
    if setting is not None:
        return f"two underscores separate the parts of a setting's name: {setting}"
    close = did_you_mean(rest, [name.removeprefix(OURS) for name in VARIABLES])
    if close is not None:
        return f"did you mean {OURS}{close}?"
    return f"settings are named {PREFIX}SECTION__KEY, with two underscores"


def _spellings(settings: Settings) -> Iterator[tuple[str, str]]:
    """Return each setting's name with single underscores, and the variable that is read for it."""
    tables: list[tuple[tuple[str, ...], list[str]]] = [((), [*keys.KAFKA.keys, *SIDES])]
    tables += [((name,), list(section.keys)) for name, section in keys.PLAIN_SECTIONS.items()]
    tables += [(("kafka",), list(SIDES))]
    for kind, channels in (("incoming", settings.incoming), ("outgoing", settings.outgoing)):
        tables += [((kind, name), [*keys.CHANNEL_SECTIONS[kind].keys, *SIDES]) for name in channels]
    # A name that fits two settings means the later one, which has the name of its section.
    for path, names in tables:
        for name in names:
            parts = [re.sub(r"[^A-Z0-9]", "_", part.upper()) for part in (*path, *name.split("."))]
            yield "_".join(parts), PREFIX + "__".join(parts if path else ["KAFKA", *parts])


def shared_groups(channels: Iterable[IncomingSettings]) -> Iterator[str]:
    """Warn of channels that are members of one group, though each should have its own."""
    groups: dict[tuple[str, str], list[tuple[IncomingSettings, Subscription]]] = {}
    for channel in channels:
        subscription = subscription_of(channel.topics, channel.pattern, channel.assign)
        if channel.group_id is not None and not isinstance(subscription, Partitions):
            group = (channel.group_id, str(channel.client.get("bootstrap_servers")))
            groups.setdefault(group, []).append((channel, subscription))
    for members in groups.values():
        first_channel, first_subscription = members[0]
        place = first_channel.place("group_id", first_channel.group_id)
        if any(subscription != first_subscription for _, subscription in members):
            names = _listed([channel.name for channel, _ in members])
            yield (
                f"{place}: give each channel a group_id of its own: {names} are members of one "
                "group and read different topics, so all give up their partitions when one joins "
                "or leaves"
            )
        for readers, topic in _read_by_several(members).items():
            yield (
                f"{place}: give each channel a group_id of its own: {_listed(readers)} are members "
                f"of one group and {'both' if len(readers) == 2 else 'all'} read {topic}, so each "
                "record goes to only one of them"
            )


def _read_by_several(
    members: Sequence[tuple[IncomingSettings, Subscription]],
) -> dict[tuple[str, ...], str]:
    """Return names of channels -> the first topic, as text, that all of them read."""
    by_topic: dict[str, list[str]] = {}
    for channel, reads in members:
        for topic in reads.topics:
            by_topic.setdefault(topic, []).append(channel.name)
    by_pattern: dict[str, list[str]] = {}
    for channel, reads in members:
        if isinstance(reads, Pattern):
            by_pattern.setdefault(reads.regex, []).append(channel.name)
            for topic, names in by_topic.items():
                if reads.reads(topic):
                    names.append(channel.name)
    readers = {f"topic {topic!r}": names for topic, names in by_topic.items()}
    readers |= {f"topics that match {regex!r}": names for regex, names in by_pattern.items()}
    found: dict[tuple[str, ...], str] = {}
    for topic, names in readers.items():
        if len(names) > 1:
            found.setdefault(tuple(names), topic)
    return found


def _listed(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:MOST_CHANNELS_NAMED]]
    if len(names) > MOST_CHANNELS_NAMED:
        shown.append(f"{len(names) - MOST_CHANNELS_NAMED} more")
    return f"channels {', '.join(shown[:-1])} and {shown[-1]}"
