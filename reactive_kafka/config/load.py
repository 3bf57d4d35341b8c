"""Makes frozen settings from what the user wrote: reads, merges and checks it.

All problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reactive_kafka.config import keys
from reactive_kafka.config.certificates import registry_files, tls_files
from reactive_kafka.config.checks import (
    INCOMING_CHECKS,
    OUTGOING_CHECKS,
    REGISTRY_CHECKS,
    SPARK_CHECKS,
    check,
    missing_group,
    retries,
    without_registry,
)
from reactive_kafka.config.client_properties import SIDES, Side
from reactive_kafka.config.collect import BROKEN, Collected, Table, View, values_of
from reactive_kafka.config.config_files import (
    FILE_VARIABLE,
    exposure_of,
    read_file,
    read_secret,
)
from reactive_kafka.config.failure_settings import FailureSettingsBuilder
from reactive_kafka.config.incoming_kinds import RATE, RateLimit
from reactive_kafka.config.kinds import COUNT, TOPIC, unknown_channel
from reactive_kafka.config.layers import PREFIX, Origin, Problems, expanded, of_code, of_environment
from reactive_kafka.config.settings import (
    HttpSettings,
    IncomingSettings,
    MemorySettings,
    OutgoingSettings,
    Settings,
    SparkSettings,
    circles_of,
    shared_by_replays,
    subscription_of,
)
from reactive_kafka.config.startup_warnings.traps import DEFAULT_FILE, traps
from reactive_kafka.config.startup_warnings.unused import (
    UNUSED_BY_HTTP,
    UNUSED_BY_INCOMING,
    UNUSED_BY_OUTGOING,
)
from reactive_kafka.config.tables import (
    CheckpointSettings,
    CloudEventsSettings,
    LimitSettings,
    RestartSettings,
    RetrySettings,
    SchemaRegistrySettings,
    SchemaSettings,
    SparkChannelSettings,
    TopicSettings,
    TracingSettings,
)
from reactive_kafka.errors import ConfigError
from reactive_kafka.formats.format_names import EVENTS

_Tables = Mapping[str, Any]
ConfigSource = str | Path | Sequence[str | Path] | _Tables | None
"""Where a configuration comes from.

One file or several; tables made in code; or None, then the environment decides.
"""


@dataclass(frozen=True, slots=True)
class LoadedConfiguration:
    """What a configuration says, and what is wrong with it."""

    # If there are problems, only the names of the channels are reliable. Broken values are
    # replaced by defaults.
    settings: Settings
    # One line each.
    problems: tuple[str, ...]
    given: Collected = field(repr=False)

    def checked(self) -> Settings:
        """Return the settings, or raise ConfigError with all problems."""
        if self.problems:
            raise ConfigError(*self.problems)
        return self.settings


def read_settings(
    source: ConfigSource,
    *,
    code: _Tables | None = None,
    environ: Mapping[str, str],
    overrides: _Tables | None = None,
) -> LoadedConfiguration:
    """Read the settings of an application.

    Precedence, lowest first: code, file, environment, overrides.

    Args:
        source: The path of a TOML, YAML, JSON or properties file, or several paths; later files
            win key by key. Or nested tables, which count as code; then no file is read. Or None:
            the file that ``$REACTIVE_KAFKA_CONFIG`` names, else ``./reactive-kafka.toml`` if it
            exists.
        code: Nested tables below everything else.
        environ: The environment: ``REACTIVE_KAFKA__INCOMING__ORDERS__TOPIC`` and the variables of
            ``${VAR}``.
        overrides: Nested tables above everything else, from the command line.

    Raises:
        ConfigError: There is no configuration, or the file cannot be read at all.
        MissingExtraError: A YAML file, and PyYAML is not installed.
    """
    problems = Problems()
    paths = _paths(source, environ)
    tables = [given for given in (code, source) if isinstance(given, Mapping)]
    written = [of_code("code", given) for given in tables]
    written += [read_file(path, environ) for path in paths]
    above = [of_code("command line", overrides)] if overrides else []
    known_paths = [leaf.path for layer in (*written, *above) for leaf in layer.leaves]
    environment = of_environment(environ, known_paths)
    if not written and not any(layer.leaves for layer in (environment, *above)):
        raise ConfigError(
            f"there is no configuration: {Path(DEFAULT_FILE).absolute()} does not exist, and no "
            f"other file is named (by --config, ${FILE_VARIABLE}, or App(...))"
        )
    given = Collected(problems, read_secret, exposure_of)
    for layer in (*written, environment, *above):
        given.add(expanded(layer, environ))
    name = ", ".join(map(str, paths)) or "code"
    _refuse_strays(given, name, problems)
    unused = Problems()
    settings = SettingsBuilder(given, problems, unused).settings(name)
    warnings = [*settings.warnings, *unused.report()]
    if not problems.lines:
        # Broken values are defaults by now, so a warning might be about a value that was never
        # written.
        warnings += traps(settings, environ, paths, has_tables=bool(tables))
    settings = replace(settings, warnings=tuple(warnings))
    return LoadedConfiguration(settings, tuple(problems.report()), given)


def toml_of_quarkus(path: Path, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the TOML that a file of Quarkus means, and its warnings.

    Raises:
        ConfigError: All problems of the file.
    """
    from reactive_kafka.config.microprofile.quarkus_files import read_quarkus
    from reactive_kafka.config.microprofile.toml_export import toml_of

    # Variables of ours override the file, but do not belong to it.
    without_ours = {
        name: value for name, value in environ.items() if not name.upper().startswith(PREFIX)
    }
    warnings = read_settings(path, environ=without_ours).checked().warnings
    meant, profiles = read_quarkus(path, without_ours)
    return toml_of(meant, f"What {path} means, profile {', '.join(profiles)}.", warnings), warnings


def read_retry(source: str, table: _Tables) -> RetrySettings:
    """Return the settings of a ``retry`` table that was given in code.

    Raises:
        ConfigError: The table has problems. Each line begins with *source*.
    """
    problems = Problems()
    given = Collected(problems, read_secret)
    channel = given.named["incoming"][""] = Table("", Origin(source))
    given.add(of_code(source, {"incoming": {"": {"retry": table}}}))
    view = View(keys.INCOMING, channel, {})
    check(view, (retries,), problems)
    lines = problems.report()
    if lines:
        raise ConfigError(*lines)
    return RetrySettings(**view.fields("retry"))


def _refuse_strays(given: Collected, source: str, problems: Problems) -> None:
    """Refuse names that only variables have, if a file or code names others: a misspelt name."""
    for kind, tables in given.named.items():
        strays = [name for name, table in tables.items() if table.origin.is_variable]
        known = tables.keys() - set(strays)
        if not known:
            continue
        what = {"topics": "topic", "limits": "limit"}.get(kind, "channel")
        for name in strays:
            table = tables.pop(name)
            why = f"{source} has no such {what}{unknown_channel(name, known)}"
            problems.add(table.origin, f"[{table.title}]", why)


def _paths(source: ConfigSource, environ: Mapping[str, str]) -> list[Path]:
    """Return the files to read. Later files win."""
    if source is None:
        source = environ.get(FILE_VARIABLE)
        if not source:
            source = DEFAULT_FILE if Path(DEFAULT_FILE).exists() else ()
    if isinstance(source, Mapping):
        return []
    if isinstance(source, str | Path):
        return [Path(source)]
    return list(map(Path, source))


class SettingsBuilder:
    """Makes frozen settings from what was collected.

    Notes contradictions and missing values as problems, and settings without effect as unused.
    """

    def __init__(
        self,
        given: Collected,
        problems: Problems,
        unused: Problems,
        other_channels: Iterable[str] = (),
    ) -> None:
        self._given = given
        # Incoming channels that exist besides those that were given.
        self._other_channels = other_channels
        self._problems = problems
        self._unused = unused
        self._kafka = given.plain["kafka"].settings
        has_registry = "url" in given.plain["schema_registry"].settings
        self._registry_checks = () if has_registry else (without_registry,)

    def settings(self, source: str) -> Settings:
        """Return all settings; *source* names where they come from, for errors."""
        plain = self._given.plain
        named = self._given.named
        made = Settings(
            source=source,
            bootstrap_servers=View(keys.KAFKA, plain["kafka"], {})["bootstrap_servers"],
            incoming={
                name: self.incoming(name, table) for name, table in named["incoming"].items()
            },
            outgoing={
                name: self._outgoing(name, table) for name, table in named["outgoing"].items()
            },
            memory={name: self._memory(name, table) for name, table in named["memory"].items()},
            spark=self._spark(View(keys.SPARK, plain["spark"], {})),
            http=self._http(View(keys.HTTP, plain["http"], {})),
            schema_registry=self._registry(
                View(keys.SCHEMA_REGISTRY, plain["schema_registry"], {})
            ),
            tracing=TracingSettings(**View(keys.TRACING, plain["tracing"], {}).fields()),
            limits={name: self._limit(name, table) for name, table in named["limits"].items()},
            topics={
                name: self._declared_topic(name, table) for name, table in named["topics"].items()
            },
            client={name: value for name, value in values_of(self._kafka).items() if name in SIDES},
            warnings=tuple(self._given.warnings),
        )
        self._refuse_shared_groups(made)
        self._find_unused_limits(made)
        self._refuse_circles(made)
        return made

    def _check_name(self, name: str, table: Table) -> None:
        """Refuse a channel's name that cannot stand in a path of HTTP or in a line of the log."""
        if name.strip() in ("", ".", "..") or not name.isprintable():
            why = (
                f"a channel cannot have the name {name!r}: a name has printable characters, not "
                'only spaces, and is not "." or ".."'
            )
            self._problems.add(table.origin, f"[{table.title}]", why)

    def _refuse_circles(self, settings: Settings) -> None:
        for circle in circles_of(settings.incoming):
            setting = self._given.named["incoming"][circle[0]].settings["after"]
            if len(circle) == 1:
                why = "a channel cannot wait for itself"
            else:
                chain = " after ".join(map(repr, (*circle, circle[0])))
                why = f"these channels would wait for each other: {chain}"
            self._problems.add(setting.origin, setting.where, why)

    def _find_unused_limits(self, settings: Settings) -> None:
        used = {channel.limit for channel in settings.incoming.values()}
        for name in settings.limits.keys() - used:
            table = self._given.named["limits"][name]
            self._unused.add(
                table.origin,
                f"[{table.title}]",
                f'has no effect: no incoming channel has limit = "{name}"',
            )

    def _refuse_shared_groups(self, settings: Settings) -> None:
        for replay, stream, topic in shared_by_replays(settings.incoming.values()):
            table = self._given.named["incoming"][replay.name]
            self._problems.add(
                table.origin,
                f"[{table.title}] group_id = {replay.group_id!r}",
                f"give the ranges a group of their own, or none: channel {stream.name!r} has the "
                f"same group and also reads {topic!r}, so each would move the positions of the "
                "other",
            )

    def _http(self, view: View) -> HttpSettings:
        check(view, UNUSED_BY_HTTP, self._unused)
        return HttpSettings(**view.fields())

    def _registry(self, view: View) -> SchemaRegistrySettings:
        check(view, (*REGISTRY_CHECKS, registry_files), self._problems)
        return SchemaRegistrySettings(**view.fields())

    def _spark(self, view: View) -> SparkSettings:
        check(view, SPARK_CHECKS, self._problems)
        fields = view.fields()
        chosen = view.nearest("remote", "master")
        if chosen:
            # The highest layer that names one of the two decides.
            for other in {"remote", "master"} - set(chosen):
                del fields[other]
        return SparkSettings(**fields, conf=values_of(self._given.spark_conf), places=view.places())

    def incoming(self, name: str, table: Table) -> IncomingSettings:
        """One incoming channel."""
        self._check_name(name, table)
        view = View(keys.INCOMING, table, self._kafka)
        check(view, (*INCOMING_CHECKS, tls_files, *self._registry_checks), self._problems)
        check(view, UNUSED_BY_INCOMING, self._unused)
        fields = view.fields() | self._what_is_read(name, view)
        fields["commit_strategy"] = view.commit_strategy
        # Kept acks are stored with commits.
        fields["keep_out_of_order_acks"] &= view.commit_strategy != "ignore"
        is_set = view.setting("max_in_flight") is not None
        if not is_set:
            fields["max_in_flight"] = max(
                fields["max_in_flight"], 2 * fields["concurrency"], fields["consumers"]
            )
        client = self._client(view, "consumer")
        fields |= FailureSettingsBuilder(
            name=name,
            view=view,
            client=client,
            reads=subscription_of(fields["topics"], fields["pattern"], fields["assign"]).reads,
            checks=(tls_files,),
            problems=self._problems,
            unused=self._unused,
        ).fields()
        if view.setting("group_id") is None:
            reason = missing_group(view, has_retries=bool(fields["delayed_retry"]))
            if reason is not None:
                why = f"group_id is missing; {reason}"
                self._problems.add(table.origin, f"[{table.title}]", why)
        fields["after"] = self._after(name, view)
        self._refuse_unknown_limit(view)
        fields["rate_limit"] = self._rate_limit(view)
        checkpoint = view.fields("checkpoint")
        has_store = view.commit_strategy == "checkpoint" and checkpoint["store"] is not None
        return IncomingSettings(
            name=name,
            **fields,
            filter_headers=values_of(view.inside("filter_headers")),
            max_in_flight_is_set=is_set,
            checkpoint=CheckpointSettings(**checkpoint) if has_store else None,
            retry=RetrySettings(**view.fields("retry")),
            restart=RestartSettings(**view.fields("restart")),
            spark=SparkChannelSettings(**view.fields("spark")),
            schema=SchemaSettings(**view.fields("schema")),
            client=client,
            places=view.places(),
        )

    def _after(self, channel: str, view: View) -> tuple[str, ...]:
        """Return the channels that come before one; unknown ones are a problem."""
        setting = view.setting("after")
        if setting is None or setting.value is BROKEN:
            return ()
        known = {*self._given.named["incoming"], *self._other_channels} - {channel}
        for name in setting.value:
            if name not in known and name != channel:
                why = f"there is no [incoming.{name}]{unknown_channel(name, known)}"
                self._problems.add(setting.origin, setting.where, why)
        return tuple(setting.value)

    def _rate_limit(self, view: View) -> RateLimit | None:
        """Return the channel's ``rate_limit``: a rate, or a table with one for each value.

        The highest layer that has either decides; a rate in a lower layer goes with its ``by``.
        """
        names = ("rate_limit", "rate_limit.rate", "rate_limit.by")
        settings = view.table.settings if any(map(view.own, names)) else view.kafka
        one, rate, by = map(settings.get, names)
        in_table = [setting for setting in (rate, by) if setting is not None]
        if one is None and not in_table:
            return None
        if any(setting is not None and setting.value is BROKEN for setting in (one, rate, by)):
            return None
        if one is not None and one.value and all(one.layer > each.layer for each in in_table):
            by = None
            rate = one
        elif rate is None and one is not None and one.value:
            rate = one
        if rate is None:
            place = by or one
            # One of the two is given, or there would be no table.
            assert place is not None  # noqa: S101
            why = f"rate is missing in rate_limit; it is {RATE.expects}"
            self._problems.add(place.origin, place.where, why)
            return None
        limit: RateLimit = rate.value
        return replace(limit, by=None if by is None else by.value)

    def _refuse_unknown_limit(self, view: View) -> None:
        limits = self._given.named["limits"]
        setting = view.setting("limit")
        if setting is None or setting.value is BROKEN or setting.value in limits:
            return
        why = f"there is no [limits.{setting.value}]{unknown_channel(setting.value, limits)}"
        self._problems.add(setting.origin, setting.where, why)

    def _what_is_read(self, name: str, view: View) -> dict[str, Any]:
        """Return the fields topics, pattern and assign. All but one of them are empty."""
        empty: dict[str, Any] = {"topics": (), "pattern": None, "assign": ()}
        key = next(iter(view.sources), "topic")
        if key == "topic":
            return empty | {"topics": (self._topic(name, view),)}
        return empty | {key: view[key] or empty[key]}

    def _outgoing(self, name: str, table: Table) -> OutgoingSettings:
        self._check_name(name, table)
        view = View(keys.OUTGOING, table, self._kafka)
        check(view, (*OUTGOING_CHECKS, tls_files, *self._registry_checks), self._problems)
        check(view, UNUSED_BY_OUTGOING, self._unused)
        fields = view.fields() | {
            "topic": self._topic(name, view),
            "cloud_events": self._events(view),
        }
        fields["schema"] = SchemaSettings(**view.fields("schema"))
        return OutgoingSettings(name=name, **fields, client=self._client(view, "producer"))

    def _events(self, view: View) -> CloudEventsSettings | None:
        """Return which values are written as CloudEvents; None if none is."""
        if view["cloud_events"] is False:
            return None
        writes_all = (
            view["cloud_events"] is True
            or view["value_serializer"] == EVENTS
            or bool(view.own_inside("cloud_events"))
        )
        return CloudEventsSettings(every=writes_all, **view.fields("cloud_events"))

    def _memory(self, name: str, table: Table) -> MemorySettings:
        self._check_name(name, table)
        for kind in ("incoming", "outgoing"):
            if name in self._given.named[kind]:
                why = f"rename it: [{kind}.{name}] has the same name, so decorators could mean both"
                self._problems.add(table.origin, f"[{table.title}]", why)
        place = f"{table.origin}: [{table.title}]"
        return MemorySettings(name=name, **View(keys.MEMORY, table, {}).fields(), place=place)

    def _topic(self, channel: str, view: View) -> str:
        """Return the topic in effect. By default it is the channel's name, if that is allowed."""
        if view.own("topic"):
            return view["topic"] or ""
        try:
            return TOPIC.parse(channel)
        except ValueError as error:
            what = f"the channel's name cannot be its topic: {error}"
            self._problems.add(view.table.origin, f"[{view.table.title}]", what)
            return ""

    def _limit(self, name: str, table: Table) -> LimitSettings:
        view = View(keys.LIMITS, table, {})
        if view.setting("concurrency") is None:
            where = f"[{table.title}]"
            self._problems.add(
                table.origin, where, f"concurrency is missing; it is {COUNT.expects}"
            )
        # With a problem the settings are not used.
        return LimitSettings(name=name, concurrency=view["concurrency"] or 1)

    def _declared_topic(self, name: str, table: Table) -> TopicSettings:
        where = f"[{table.title}]"
        try:
            TOPIC.parse(name)
        except ValueError as error:
            self._problems.add(table.origin, where, str(error))
        view = View(keys.TOPICS, table, {})
        return TopicSettings(
            name=name,
            **view.fields(),
            config=values_of(view.inside("config")),
            place=f"{table.origin}: {where}",
        )

    def _client(self, view: View, side: Side) -> dict[str, Any]:
        """Return the raw properties of a client. The channel's own win over those of [kafka]."""
        given = {
            name: value
            for name, value in values_of(view.given()).items()
            if side in SIDES.get(name, ())
        }
        return {"bootstrap_servers": view["bootstrap_servers"]} | given
