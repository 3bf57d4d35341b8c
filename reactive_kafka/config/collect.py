"""From layers of leaves to one table of settings per section: names resolved, values parsed, the
highest layer wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.config import keys
from reactive_kafka.config.keys import (
    CHANNEL_SECTIONS,
    KAFKA,
    PLAIN_SECTIONS,
    Meaning,
    NoMeaning,
    Section,
    meaning,
)
from reactive_kafka.config.layers import Layer, Leaf, Origin, Problems
from reactive_kafka.config.secrets import MASK, may_be_secret, protect, protect_spark, shown

SCHEMA = "$schema"
"""At the top it tells an editor where the JSON Schema is: JSON has no comments that could."""
# It names a file with a secret; the client reads it.
PRIVATE_KEY = "ssl_keyfile"
BROKEN: Any = type("Broken", (), {"__repr__": lambda self: "<broken>"})()
"""Stands for a value whose problem has been noted already."""
SPARK_REFUSED = {
    "spark.master": 'write master = "..." in [spark]',
    "spark.remote": 'write remote = "sc://host:15002" in [spark]',
}
"""Spark's properties that ``[spark]`` has keys for; in ``[spark.conf]`` they would have no
effect.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that was given, parsed; ``BROKEN`` if its problem has been noted already."""

    value: Any
    # Section, key as written, and value as it may be shown, for further problems.
    where: str
    origin: Origin
    # A higher one wins.
    layer: int
    # What a lower layer says in the same table.
    below: Setting | None = field(default=None, repr=False)


BESIDE_RANGES = ("group_id", "commit_strategy", "enable_auto_commit", "keep_out_of_order_acks")
"""What counts for ranges in ``assign`` only where it stands beside them, in the same table of the
same layer.

A replay that inherited the group of the stream, from another file say, would move the stream's
positions back.
"""


def values_of(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Name -> value, without the broken ones."""
    return {
        name: setting.value for name, setting in settings.items() if setting.value is not BROKEN
    }


@dataclass(slots=True)
class Table:
    """What was given for one section or channel."""

    title: str
    # Where it is first named.
    origin: Origin
    settings: dict[str, Setting] = field(default_factory=dict)


class Collected:
    """All that was given, merged. Channels by direction and name; ``spark_conf`` under its own
    names.
    """

    def __init__(
        self,
        problems: Problems,
        read_secret: Callable[[str], str],
        exposure_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.plain = {name: Table(name, Origin("code")) for name in PLAIN_SECTIONS}
        self.channels: dict[str, dict[str, Table]] = {kind: {} for kind in CHANNEL_SECTIONS}
        self.spark_conf: dict[str, Setting] = {}
        self._problems = problems
        # In their order, each once.
        self.warnings: dict[str, None] = {}
        self._read_secret = read_secret
        self._exposure_of = exposure_of
        self._layer = Layer(())
        self._number = 0

    def add(self, layer: Layer) -> None:
        """Put a layer on top of what was collected so far."""
        self._layer = layer
        self._number += 1
        self.warnings |= dict.fromkeys(layer.warnings)
        for problem in layer.problems:
            self._problems.add(*problem)
        for leaf in layer.leaves:
            if leaf.path == (SCHEMA,) and isinstance(leaf.value, str):
                continue
            top = leaf.path[0].replace("-", "_")
            if top in PLAIN_SECTIONS:
                if top == "spark" and leaf.path[1:2] == ("conf",):
                    self._spark_conf(leaf)
                else:
                    self._setting(PLAIN_SECTIONS[top], self.plain[top], leaf, leaf.path[1:])
            elif top in CHANNEL_SECTIONS:
                self._channel(top, leaf)
            else:
                reason = keys.unknown_section(leaf.path[0])
                self._problems.add(self._header(leaf, 1), leaf.where or f"[{leaf.path[0]}]", reason)

    def _channel(self, top: str, leaf: Leaf) -> None:
        name = next(iter(leaf.path[1:]), "X")
        if len(leaf.path) == 1 or (len(leaf.path) == 2 and not _is_empty(leaf.value)):
            self._expect_table(leaf, f"[{top}.{name}]")
            return
        table = self.channels[top].setdefault(
            name, Table(".".join(leaf.path[:2]), self._header(leaf, 2))
        )
        self._setting(CHANNEL_SECTIONS[top], table, leaf, leaf.path[2:])

    def _header(self, leaf: Leaf, depth: int) -> Origin:
        """Where the table around *leaf* begins, as far as that is known."""
        line = self._layer.line_of(leaf.path[:depth])
        return Origin(leaf.origin.source, line or leaf.origin.line)

    def _expect_table(self, leaf: Leaf, table: str) -> None:
        if not _is_empty(leaf.value):
            name = ".".join(leaf.path)
            self._problems.add(
                leaf.origin, f"{name} = {shown(name, leaf.value)}", f"expected a table: {table}"
            )

    def _setting(self, section: Section, table: Table, leaf: Leaf, path: tuple[str, ...]) -> None:
        """Keep what *leaf* says for *table*; *path* is the part of its path inside the section."""
        if not path:
            self._expect_table(leaf, f"[{table.title}]")
            return
        written = ".".join(path)
        if (inside := written.replace("-", "_")) in section.tables and _is_empty(leaf.value):
            self._keep(table.settings, inside, {}, f"[{table.title}.{written}]", leaf)
            return
        try:
            found = meaning(section, path)
        except NoMeaning as error:
            shown_value = MASK if may_be_secret(written) else shown(written, leaf.value)
            self._problems.add(
                leaf.origin, leaf.where or _where(table, written, shown_value), str(error)
            )
            for name in error.meant:
                self._keep(table.settings, name, BROKEN, "", leaf)
            return
        # The path of a file is no secret, and must be readable whole to be of use.
        of_secret, limit = ("", 500) if found.in_file else ("" if found.is_open else written, 80)
        where = leaf.where or _where(table, written, shown(of_secret, leaf.value, limit=limit))
        for name, value in self._values(found, leaf, where).items():
            self._keep(table.settings, name, value, where, leaf)

    def _values(self, found: Meaning, leaf: Leaf, where: str) -> dict[str, Any]:
        """Name -> value; all broken when the value is wrong."""
        raw = leaf.value
        if leaf.text is not None and found.kind.native and not isinstance(raw, found.kind.native):
            raw = leaf.text
        try:
            if leaf.problem:
                raise ValueError(leaf.problem)
            if found.in_file:
                raw = self._from_file(leaf, where) if isinstance(raw, str) else raw
            values = found.values(found.kind.parse(raw))
            if PRIVATE_KEY in values:
                self._look_at(values[PRIVATE_KEY], leaf, where)
        except ValueError as error:
            self._problems.add(leaf.origin, where, str(error))
            return dict.fromkeys(found.names, BROKEN)
        return {
            name: protect("" if found.is_open else name, value) for name, value in values.items()
        }

    def _from_file(self, leaf: Leaf, where: str) -> str:
        path = leaf.text or leaf.value
        text = self._read_secret(path)
        self._look_at(path, leaf, where)
        return text

    def _look_at(self, path: str, leaf: Leaf, where: str) -> None:
        """Warn of a file with a secret in it that others may read."""
        if exposure := self._exposure_of(path):
            self.warnings[f"{leaf.origin}: {where}: {exposure}"] = None

    def _spark_conf(self, leaf: Leaf) -> None:
        name = ".".join(leaf.path[2:])
        if not name:
            self._expect_table(leaf, "[spark.conf]")
            return
        fits = isinstance(leaf.value, str | bool | int | float)
        value = protect_spark(name, leaf.value) if fits else leaf.value
        where = f"[spark] conf.{name} = {shown(f'conf.{name}', value)}"
        problem = None if fits else "expected a string, a number or a boolean"
        if problem := leaf.problem or SPARK_REFUSED.get(name) or problem:
            self._problems.add(leaf.origin, where, problem)
        else:
            self._keep(self.spark_conf, name, value, where, leaf)

    def _keep(
        self, settings: dict[str, Setting], name: str, value: Any, where: str, leaf: Leaf
    ) -> None:
        """Replace the setting of a lower layer. Two different values in one layer are a problem."""
        # A layer may name a setting twice in two spellings: group_id and group.id. Which of them
        # was meant, nobody can tell, so they must agree. A broken value has been reported already;
        # it must not be reported as a conflict too.
        old = settings.get(name)
        if old is None or old.layer != self._number or BROKEN in (old.value, value):
            below = old.below if old is not None and old.layer == self._number else old
            settings[name] = Setting(value, where, leaf.origin, self._number, below)
        elif old.value != value:
            self._problems.add(
                leaf.origin, where, f"{old.where} ({old.origin}) says something else"
            )


def _where(table: Table, written: str, value: str) -> str:
    return f"{f'[{table.title}] ' if table.title else ''}{written} = {value}"


def _is_empty(value: Any) -> bool:
    """True for a table without keys, which YAML reads as None."""
    return value is None or value == {}


@dataclass(frozen=True, slots=True)
class View:
    """A channel as it will run: its own settings, else those of ``[kafka]``, else the defaults."""

    section: Section
    table: Table
    kafka: Mapping[str, Setting]

    def __getitem__(self, name: str) -> Any:
        """The value in effect. None for a raw property that was not given, and for a broken one
        without a default.
        """
        setting = self.setting(name)
        if setting is not None and setting.value is not BROKEN:
            return setting.value
        key = self.section.keys.get(name) or KAFKA.keys.get(name)
        return None if key is None else key.parsed_default

    def setting(self, name: str) -> Setting | None:
        """What was given for *name*, nearest first."""
        nearest = self.table.settings.get(name) or self.kafka.get(name)
        if name in BESIDE_RANGES and nearest is not None:
            if name == "group_id" and nearest.value is False:
                return None
            if self.has_ranges:
                return self._beside_ranges(name)
        return nearest

    @property
    def has_ranges(self) -> bool:
        """True where it reads ranges of offsets, or one at least."""
        return "assign" in self.sources and any(map(_has_end, self["assign"] or ()))

    def _beside_ranges(self, name: str) -> Setting | None:
        """What stands for *name* in the table and the layer that ``assign`` is from."""
        at = self.table.settings["assign"].layer
        setting = self.table.settings.get(name)
        while setting is not None and setting.layer > at:
            setting = setting.below
        return None if setting is None or setting.layer < at or setting.value is False else setting

    @property
    def group_not_inherited(self) -> Setting | None:
        """The group that its ranges would have, if groups were inherited by ranges."""
        nearest = self.table.settings.get("group_id") or self.kafka.get("group_id")
        return (
            nearest
            if nearest is not None and nearest.value and self.setting("group_id") is None
            else None
        )

    def own(self, name: str) -> bool:
        """True where the channel's own table says it."""
        return name in self.table.settings

    def differs(self, name: str) -> bool:
        """True where the channel's own table says it, and something else than the default."""
        return self.own(name) and self[name] != self.section.keys[name].parsed_default

    def nearest(self, *names: str) -> tuple[str, ...]:
        """Of *names*, which exclude each other, those that the highest layer with any of them
        gives.
        """
        given = {name: self.table.settings[name].layer for name in names if self.own(name)}
        return tuple(name for name, layer in given.items() if layer == max(given.values()))

    @property
    def sources(self) -> tuple[str, ...]:
        """The keys in effect that say what the channel reads; none if its name decides."""
        return self.nearest("topic", "topics", "pattern", "assign")

    @property
    def commit_strategy(self) -> str:
        """The commit strategy in effect: where nothing else was said ``ignore`` for ranges without
        a group, too.
        """
        has_ends = "assign" in self.sources and all(map(_has_end, self["assign"] or (None,)))
        needs_none = self["enable_auto_commit"] or (has_ends and self.setting("group_id") is None)
        if self.setting("commit_strategy") is None and needs_none:
            return "ignore"
        return str(self["commit_strategy"])

    @property
    def is_spark(self) -> bool:
        """True where the channel has a ``spark`` table of its own."""
        return bool(self.own_inside("spark"))

    def fields(self, table: str = "") -> dict[str, Any]:
        """Field -> value in effect, of the section's settings, or of those of a table inside it."""
        targets = {
            name: key.target.rpartition(".")
            for name, key in self.section.keys.items()
            if key.target
        }
        return {
            field: self[name] for name, (inside, _, field) in targets.items() if inside == table
        }

    def given(self) -> dict[str, Setting]:
        """Name -> what was given for it, the channel's over those of ``[kafka]``."""
        given = {**self.kafka, **self.table.settings}
        for name in BESIDE_RANGES:
            if name in given:
                counts = self.setting(name)
                if counts is None:
                    del given[name]
                else:
                    given[name] = counts
        return given

    def inside(self, table: str) -> dict[str, Setting]:
        """The same for the keys of a table inside it, without the table's name."""
        prefix = f"{table}."
        return {
            name.removeprefix(prefix): one
            for name, one in self.given().items()
            if name.startswith(prefix)
        }

    def own_inside(self, table: str) -> list[Setting]:
        """What the channel itself says in, or of, a table inside it."""
        return [
            setting
            for name, setting in self.table.settings.items()
            if name.partition(".")[0] == table
        ]

    def places(self) -> dict[str, str]:
        """Key -> where it was given and what stands there, as it may be shown."""
        return {
            name: f"{setting.origin}: {setting.where}" for name, setting in self.given().items()
        }


def _has_end(assigned: Any) -> bool:
    """Whether a part of ``assign`` is a range of offsets."""
    return getattr(assigned, "until", None) is not None
