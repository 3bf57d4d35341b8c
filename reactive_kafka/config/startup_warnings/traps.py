"""What is allowed as it stands, and hardly meant: told at the start and by ``check``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
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
"""Read by the commands that have ``--bootstrap-servers``, and by no application."""
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
    }
)
"""Those with single underscores that something of this package reads."""
_OF_KUBERNETES = re.compile(r"SERVICE_(HOST|PORT(_.+)?)|PORT_\d+_(TCP|UDP|SCTP)(_.+)?")
"""What Kubernetes itself sets in every pod, where there is a Service called reactive-kafka."""
CHANNELS_NAMED = 3


def traps(
    settings: Settings, environ: Mapping[str, str], code: bool, paths: Sequence[Path]
) -> Iterator[str]:
    """One line each; *code*: tables made in code are the configuration, or part of it; *paths*: its
    files.
    """
    yield from _passed_over(environ, code, paths)
    yield from _unread(settings, environ)
    yield from shared_groups(settings.incoming.values())


def _passed_over(environ: Mapping[str, str], code: bool, paths: Sequence[Path]) -> Iterator[str]:
    """Files that somebody may take for the configuration, or for a part of it."""
    named = environ.get(FILE_VARIABLE)
    if named and Path(named) not in paths:
        instead = ", ".join(map(str, paths)) or "App({...}), which has tables"
        yield f"{VARIABLE}{FILE_VARIABLE} = {named!r}: not read: the configuration is that of {instead}"
    elif code and not paths and Path(DEFAULT_FILE).exists():
        why = "not read: App({...}) has tables, which are the whole configuration; App() would read the file"
        yield f"{Path(DEFAULT_FILE).absolute()}: {why}"


def _unread(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Variables that look like ours, and that nobody reads. Their values may be secrets, and are
    not shown.
    """
    spelled: dict[str, str] | None = None
    for variable in environ:
        rest = variable.upper().removeprefix(OURS)
        if (
            rest == variable.upper()
            or variable.upper().startswith(PREFIX)
            or _OF_KUBERNETES.fullmatch(rest)
        ):
            continue
        if variable == SERVERS_VARIABLE:
            if environ[variable] != settings.bootstrap_servers:
                right = f"an application reads {PREFIX}KAFKA__BOOTSTRAP_SERVERS"
                yield f"{VARIABLE}{variable}: not read: it is for commands such as `lag`; {right}"
            continue
        if variable in VARIABLES:
            continue
        if spelled is None:
            spelled = dict(_spellings(settings))
        if near := spelled.get(re.sub("_+", "_", rest)):
            meant = f"two underscores separate the parts of a setting's name: {near}"
        elif close := did_you_mean(rest, [name.removeprefix(OURS) for name in VARIABLES]):
            meant = f"did you mean {OURS}{close}?"
        else:
            meant = f"settings are named {PREFIX}SECTION__KEY, with two underscores"
        yield f"{VARIABLE}{variable}: not read; {meant}"


def _spellings(settings: Settings) -> Iterator[tuple[str, str]]:
    """The name of each setting with single underscores, and the variable that is read for it."""
    tables: list[tuple[tuple[str, ...], list[str]]] = [((), [*keys.KAFKA.keys, *SIDES])]
    tables += [((name,), list(section.keys)) for name, section in keys.PLAIN_SECTIONS.items()]
    tables += [(("kafka",), list(SIDES))]
    for kind, channels in (("incoming", settings.incoming), ("outgoing", settings.outgoing)):
        tables += [((kind, name), [*keys.CHANNEL_SECTIONS[kind].keys, *SIDES]) for name in channels]
    # Of what fits two, the one with its section's name comes later, and counts.
    for path, names in tables:
        for name in names:
            parts = [re.sub(r"[^A-Z0-9]", "_", part.upper()) for part in (*path, *name.split("."))]
            yield "_".join(parts), PREFIX + "__".join(parts if path else ["KAFKA", *parts])


def shared_groups(channels: Iterable[IncomingSettings]) -> Iterator[str]:
    """Channels that are members of one group, though each is meant for topics of its own."""
    groups: dict[tuple[str, str], list[tuple[IncomingSettings, Subscription]]] = {}
    for channel in channels:
        reads = subscription_of(channel.topics, channel.pattern, channel.assign)
        if channel.group_id is not None and not isinstance(reads, Partitions):
            group = (channel.group_id, str(channel.client.get("bootstrap_servers")))
            groups.setdefault(group, []).append((channel, reads))
    for members in groups.values():
        first = members[0][0]
        place = members[0][0].place("group_id", members[0][0].group_id)
        if any(reads != members[0][1] for _, reads in members):
            who = _named([channel.name for channel, _ in members])
            why = "whenever one of them joins or leaves, all of them let go of their partitions"
            what = f"{who} are members of one group and read different topics: {why}"
            yield f"{place}: {what}; give each channel a group_id of its own"
        for (one, reads), (other, others) in combinations(members, 2):
            if topic := _common(reads, others):
                yield (
                    f"{first.place('group_id', first.group_id)}: {_named([one.name, other.name])} are members of one "
                    f"group and both read {topic}: each record goes to one of them; give each a group_id of its own"
                )


def _common(one: Subscription, other: Subscription) -> str | None:
    """A topic that both read; None: none that is known."""
    if isinstance(one, Pattern) and one == other:
        return f"what fits {one.regex!r}"
    return next(
        (
            f"topic {name!r}"
            for name in (*one.topics, *other.topics)
            if one.reads(name) and other.reads(name)
        ),
        None,
    )


def _named(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:CHANNELS_NAMED]]
    if len(names) > CHANNELS_NAMED:
        shown.append(f"{len(names) - CHANNELS_NAMED} more")
    return f"channels {', '.join(shown[:-1])} and {shown[-1]}"
