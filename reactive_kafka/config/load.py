"""Makes frozen settings of what the user wrote: reads, merges and checks it, and reports every
problem at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from reactive_kafka.config.collect import Collected, Table, View, values_of
from reactive_kafka.config.config_files import (
    FILE_VARIABLE,
    exposure_of,
    read_file,
    read_secret,
)
from reactive_kafka.config.failure_settings import FailureSettingsBuilder
from reactive_kafka.config.kinds import TOPIC, unknown_channel
from reactive_kafka.config.layers import PREFIX, Origin, Problems, expanded, of_code, of_environment
from reactive_kafka.config.settings import (
    HttpSettings,
    IncomingSettings,
    MemorySettings,
    OutgoingSettings,
    Settings,
    SparkSettings,
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
    RestartSettings,
    RetrySettings,
    SchemaRegistrySettings,
    SchemaSettings,
    SparkChannelSettings,
    TracingSettings,
)
from reactive_kafka.errors import ConfigError
from reactive_kafka.formats.format_names import EVENTS

_Tables = Mapping[str, Any]
ConfigSource = str | Path | Sequence[str | Path] | _Tables | None
"""Where a configuration may come from: a file, or several; tables made in code; None: as the
environment says.
"""


@dataclass(frozen=True, slots=True)
class LoadedConfiguration:
    """What a configuration says, and what is wrong with it."""

    # With problems, only the channels' names can be relied on: broken values are defaults.
    settings: Settings
    # One line each.
    problems: tuple[str, ...]
    given: Collected = field(repr=False)

    def checked(self) -> Settings:
        """The settings; a ConfigError with all problems if there are any."""
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
    """Read the settings of an application. Precedence, lowest first: code, file, environment,
    overrides.

    Args:
        source: The path of a TOML, YAML, JSON or properties file, or several, of which later ones
            win key by key. Or nested tables, which count as code; then no file is read. Or None:
            the file that ``$REACTIVE_KAFKA_CONFIG`` names, else ``./reactive-kafka.toml`` if it
            exists.
        code: Nested tables below everything else.
        environ: The environment: ``REACTIVE_KAFKA__INCOMING__ORDERS__TOPIC`` and the variables of
            ``${VAR}``.
        overrides: Nested tables above everything else, from the command line.

    Raises:
        ConfigError: There is no configuration, or the file cannot be read at all.
        MissingExtraError: A YAML file without PyYAML.
    """
    problems = Problems()
    paths = _paths(source, environ)
    tables = [given for given in (code, source) if isinstance(given, Mapping)]
    written = [of_code("code", given) for given in tables] + [
        read_file(path, environ) for path in paths
    ]
    above = [of_code("command line", overrides)] if overrides else []
    environment = of_environment(
        environ, [leaf.path for layer in (*written, *above) for leaf in layer.leaves]
    )
    if not written and not any(layer.leaves for layer in (environment, *above)):
        raise ConfigError(
            f"there is no configuration: {Path(DEFAULT_FILE).absolute()} does not exist, and no other file is named"
            f" (by --config, ${FILE_VARIABLE}, or App(...))"
        )
    given = Collected(problems, read_secret, exposure_of)
    for layer in (*written, environment, *above):
        given.add(expanded(layer, environ))
    name = ", ".join(map(str, paths)) or "code"
    _drop_strays(given, name, problems)
    unused = Problems()
    settings = SettingsBuilder(given, problems, unused).settings(name)
    told = traps(settings, environ, bool(tables), paths) if not problems.lines else ()
    settings = replace(settings, warnings=(*settings.warnings, *unused.report(), *told))
    return LoadedConfiguration(settings, tuple(problems.report()), given)


def toml_of_quarkus(path: Path, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The TOML that a file of Quarkus means, and the warnings in it; a ConfigError has all
    problems.
    """
    from reactive_kafka.config.microprofile.quarkus_files import read_quarkus
    from reactive_kafka.config.microprofile.toml_export import toml_of

    # Is of no file.
    outside = {
        name: value for name, value in environ.items() if not name.upper().startswith(PREFIX)
    }
    warnings = read_settings(path, environ=outside).checked().warnings
    meant, profiles = read_quarkus(path, outside)
    return toml_of(meant, f"What {path} means, profile {', '.join(profiles)}.", warnings), warnings


def read_retry(source: str, table: _Tables) -> RetrySettings:
    """The settings of a ``retry`` table that code gave; *source* begins each line of the error, a
    ConfigError.
    """
    problems = Problems()
    given = Collected(problems, read_secret)
    channel = given.channels["incoming"][""] = Table("", Origin(source))
    given.add(of_code(source, {"incoming": {"": {"retry": table}}}))
    view = View(keys.INCOMING, channel, {})
    check(view, (retries,), problems)
    if lines := problems.report():
        raise ConfigError(*lines)
    return RetrySettings(**view.fields("retry"))


def _drop_strays(given: Collected, source: str, problems: Problems) -> None:
    """Refuse channels that only the environment names while a file or code names others: they are
    misspelt.
    """
    for channels in given.channels.values():
        strays = [name for name, table in channels.items() if table.origin.is_variable]
        known = channels.keys() - set(strays)
        for name in strays if known else ():
            table = channels.pop(name)
            why = f"{source} has no such channel{unknown_channel(name, known)}"
            problems.add(table.origin, f"[{table.title}]", why)


def _paths(source: ConfigSource, environ: Mapping[str, str]) -> list[Path]:
    """The files to read, the strongest last."""
    if source is None:
        source = environ.get(FILE_VARIABLE) or (DEFAULT_FILE if Path(DEFAULT_FILE).exists() else ())
    if isinstance(source, Mapping):
        return []
    return [Path(source)] if isinstance(source, str | Path) else list(map(Path, source))


class SettingsBuilder:
    """Makes the frozen settings of what was collected, and notes contradictions, what is missing
    and what is unused.
    """

    def __init__(self, given: Collected, problems: Problems, unused: Problems) -> None:
        self._given = given
        self._problems = problems
        self._unused = unused
        self._kafka = given.plain["kafka"].settings
        self._unregistered = (
            () if "url" in given.plain["schema_registry"].settings else (without_registry,)
        )

    def settings(self, source: str) -> Settings:
        plain = self._given.plain
        channels = self._given.channels
        made = Settings(
            source=source,
            bootstrap_servers=View(keys.KAFKA, plain["kafka"], {})["bootstrap_servers"],
            incoming={
                name: self.incoming(name, table) for name, table in channels["incoming"].items()
            },
            outgoing={
                name: self._outgoing(name, table) for name, table in channels["outgoing"].items()
            },
            memory={name: self._memory(name, table) for name, table in channels["memory"].items()},
            spark=self._spark(View(keys.SPARK, plain["spark"], {})),
            http=self._http(View(keys.HTTP, plain["http"], {})),
            schema_registry=self._registry(
                View(keys.SCHEMA_REGISTRY, plain["schema_registry"], {})
            ),
            tracing=TracingSettings(**View(keys.TRACING, plain["tracing"], {}).fields()),
            warnings=tuple(self._given.warnings),
        )
        for replay, stream, topic in shared_by_replays(made.incoming.values()):
            table = channels["incoming"][replay.name]
            why = f"channel {stream.name!r} has the same group and reads {topic!r}, too, so that one would move the "
            why += "positions of the other; ranges are read in a group of their own, or in none"
            self._problems.add(table.origin, f"[{table.title}] group_id = {replay.group_id!r}", why)
        return made

    def _http(self, view: View) -> HttpSettings:
        check(view, UNUSED_BY_HTTP, self._unused)
        return HttpSettings(**view.fields())

    def _registry(self, view: View) -> SchemaRegistrySettings:
        check(view, (*REGISTRY_CHECKS, registry_files), self._problems)
        return SchemaRegistrySettings(**view.fields())

    def _spark(self, view: View) -> SparkSettings:
        check(view, SPARK_CHECKS, self._problems)
        fields = view.fields()
        driver = view.nearest("remote", "master")
        for other in {"remote", "master"} - set(driver) if driver else ():
            # A higher layer has chosen between the two.
            del fields[other]
        return SparkSettings(**fields, conf=values_of(self._given.spark_conf), places=view.places())

    def incoming(self, name: str, table: Table) -> IncomingSettings:
        """One incoming channel."""
        view = View(keys.INCOMING, table, self._kafka)
        check(view, (*INCOMING_CHECKS, tls_files, *self._unregistered), self._problems)
        check(view, UNUSED_BY_INCOMING, self._unused)
        fields = view.fields() | self._reads(name, view)
        fields["commit_strategy"] = view.commit_strategy
        fields["keep_out_of_order_acks"] &= view.commit_strategy != "ignore"
        is_set = view.setting("max_in_flight") is not None
        if not is_set:
            fields["max_in_flight"] = max(
                fields["max_in_flight"], 2 * fields["concurrency"], fields["consumers"]
            )
        client = self._client(view, "consumer")
        reads = subscription_of(fields["topics"], fields["pattern"], fields["assign"]).reads
        fields |= FailureSettingsBuilder(
            name, view, client, reads, (tls_files,), self._problems, self._unused
        ).fields()
        if view.setting("group_id") is None and (
            reason := missing_group(view, retries=bool(fields["delayed_retry"]))
        ):
            self._problems.add(table.origin, f"[{table.title}]", f"group_id is missing; {reason}")
        checkpoint = view.fields("checkpoint")
        is_kept = view.commit_strategy == "checkpoint" and checkpoint["store"] is not None
        return IncomingSettings(
            name=name,
            **fields,
            max_in_flight_is_set=is_set,
            checkpoint=CheckpointSettings(**checkpoint) if is_kept else None,
            retry=RetrySettings(**view.fields("retry")),
            restart=RestartSettings(**view.fields("restart")),
            spark=SparkChannelSettings(**view.fields("spark")),
            schema=SchemaSettings(**view.fields("schema")),
            client=client,
            places=view.places(),
        )

    def _reads(self, name: str, view: View) -> dict[str, Any]:
        """The values of topics, pattern and assign: all but one of them are empty."""
        nothing: dict[str, Any] = {"topics": (), "pattern": None, "assign": ()}
        source = next(iter(view.sources), "topic")
        if source == "topic":
            return nothing | {"topics": (self._topic(name, view),)}
        return nothing | {source: view[source] or nothing[source]}

    def _outgoing(self, name: str, table: Table) -> OutgoingSettings:
        view = View(keys.OUTGOING, table, self._kafka)
        check(view, (*OUTGOING_CHECKS, tls_files, *self._unregistered), self._problems)
        check(view, UNUSED_BY_OUTGOING, self._unused)
        fields = view.fields() | {
            "topic": self._topic(name, view),
            "cloud_events": self._events(view),
        }
        fields["schema"] = SchemaSettings(**view.fields("schema"))
        return OutgoingSettings(name=name, **fields, client=self._client(view, "producer"))

    def _events(self, view: View) -> CloudEventsSettings | None:
        """What it makes CloudEvents of; None: of nothing."""
        if view["cloud_events"] is False:
            return None
        is_demanded = view["cloud_events"] is True or view["value_serializer"] == EVENTS
        return CloudEventsSettings(
            every=is_demanded or bool(view.own_inside("cloud_events")),
            **view.fields("cloud_events"),
        )

    def _memory(self, name: str, table: Table) -> MemorySettings:
        for kind, channels in self._given.channels.items():
            if kind != "memory" and name in channels:
                why = f"[{kind}.{name}] has the same name; a decorator could mean either of them"
                self._problems.add(table.origin, f"[{table.title}]", why)
        place = f"{table.origin}: [{table.title}]"
        return MemorySettings(name=name, **View(keys.MEMORY, table, {}).fields(), place=place)

    def _topic(self, channel: str, view: View) -> str:
        """The topic in effect: by default the channel's name, if a topic can have it."""
        if view.own("topic"):
            return view["topic"] or ""
        try:
            return TOPIC.parse(channel)
        except ValueError as error:
            what = f"the channel's name cannot be its topic: {error}"
            self._problems.add(view.table.origin, f"[{view.table.title}]", what)
            return ""

    def _client(self, view: View, side: Side) -> dict[str, Any]:
        """The properties of one side's client, the channel's over those of ``[kafka]``."""
        given = {
            name: value
            for name, value in values_of(view.given()).items()
            if side in SIDES.get(name, ())
        }
        return {"bootstrap_servers": view["bootstrap_servers"]} | given
