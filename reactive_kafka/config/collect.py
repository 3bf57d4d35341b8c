"""Merges layers into one table of settings per section.

Names are resolved, values are parsed, and the highest layer wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.config import keys
from reactive_kafka.config.keys import (
    KAFKA,
    NAMED_SECTIONS,
    PLAIN_SECTIONS,
    Meaning,
    NoMeaning,
    Section,
    meaning,
)
from reactive_kafka.config.layers import Layer, Leaf, Origin, Problems
from reactive_kafka.config.secrets import (
    MASK,
    Secret,
    may_be_secret,
    protect,
    protect_spark,
    shown,
)

SCHEMA = "$schema"
"""The key at the top that tells an editor where the JSON Schema is. JSON has no comments for it."""
# The key of a file with a secret. The client reads the file, so only its mode is checked here.
PRIVATE_KEY = "ssl_keyfile"
BROKEN: Any = type("Broken", (), {"__repr__": lambda self: "<broken>"})()
"""The value of a setting whose problem has been noted already."""
SPARK_REFUSED = {
    "spark.master": 'write master = "..." in [spark]',
    "spark.remote": 'write remote = "sc://host:15002" in [spark]',
}
"""Spark's properties that are keys of ``[spark]``. In ``[spark.conf]`` they have no effect."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that was given, parsed; ``BROKEN`` if its problem has been noted already."""

    value: Any
    # Section, key as written, and value as it may be shown, for further problems.
    where: str
    origin: Origin
    # The number of its layer. A higher layer wins.
    layer: int
    # The setting of a lower layer in the same table.
    below: Setting | None = field(default=None, repr=False)


NOT_INHERITED_BY_RANGES = (
    "group_id",
    "commit_strategy",
    "enable_auto_commit",
    "keep_out_of_order_acks",
)
"""The keys that apply to ranges in ``assign`` only from the same table of the same layer.

If a replay inherited the group of the stream, for example from another file, it would move the
stream's positions back.
"""


def values_of(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Return name -> value, without broken values."""
    return {
        name: setting.value for name, setting in settings.items() if setting.value is not BROKEN
    }


@dataclass(slots=True)
class Table:
    """What was given for one section or channel."""

    title: str
    # Where it is named first.
    origin: Origin
    settings: dict[str, Setting] = field(default_factory=dict)


class Collected:
    """Everything that was given, merged.

    Attributes:
        plain: Section -> its table.
        named: ``incoming``, ``limits`` or another of these sections -> name -> its table.
        spark_conf: Spark's own properties, under their own names.
        warnings: What to warn of, in order, each once.
    """

    def __init__(
        self,
        problems: Problems,
        read_secret: Callable[[str], str],
        exposure_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.plain = {name: Table(name, Origin("code")) for name in PLAIN_SECTIONS}
        self.named: dict[str, dict[str, Table]] = {kind: {} for kind in NAMED_SECTIONS}
        self.spark_conf: dict[str, Setting] = {}
        self.warnings: dict[str, None] = {}
        self._problems = problems
        self._read_secret = read_secret
        self._exposure_of = exposure_of
        # The layer that is being added, and its number.
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
            self._add_leaf(leaf)

    def _add_leaf(self, leaf: Leaf) -> None:
        if leaf.path == (SCHEMA,) and isinstance(leaf.value, str):
            return
        top = leaf.path[0].replace("-", "_")
        if top == "spark" and leaf.path[1:2] == ("conf",):
            self._add_spark_property(leaf)
        elif top in PLAIN_SECTIONS:
            self._add_setting(PLAIN_SECTIONS[top], self.plain[top], leaf, leaf.path[1:])
        elif top in NAMED_SECTIONS:
            self._add_to_named(top, leaf)
        else:
            reason = keys.unknown_section(leaf.path[0])
            where = leaf.where or f"[{leaf.path[0]}]"
            self._problems.add(self._table_origin(leaf, 1), where, reason)

    def _add_to_named(self, top: str, leaf: Leaf) -> None:
        name = next(iter(leaf.path[1:]), "X")
        if len(leaf.path) == 1 or (len(leaf.path) == 2 and not _is_empty(leaf.value)):
            self._expect_table(leaf, f"[{top}.{name}]")
            return
        new_table = Table(".".join(leaf.path[:2]), self._table_origin(leaf, 2))
        table = self.named[top].setdefault(name, new_table)
        self._add_setting(NAMED_SECTIONS[top], table, leaf, leaf.path[2:])

    def _table_origin(self, leaf: Leaf, depth: int) -> Origin:
        """Return where the table around *leaf* begins, as far as that is known."""
        line = self._layer.line_of(leaf.path[:depth])
        return Origin(leaf.origin.source, line or leaf.origin.line)

    def _expect_table(self, leaf: Leaf, table: str) -> None:
        """Note a problem if *leaf* has a value in the place of a table."""
        if not _is_empty(leaf.value):
            name = ".".join(leaf.path)
            self._problems.add(
                leaf.origin, f"{name} = {shown(name, leaf.value)}", f"expected a table: {table}"
            )

    def _add_setting(
        self, section: Section, table: Table, leaf: Leaf, path: tuple[str, ...]
    ) -> None:
        """Keep what *leaf* says for *table*; *path* is the part of its path inside the section."""
        if not path:
            self._expect_table(leaf, f"[{table.title}]")
            return
        written = ".".join(path)
        inner_table = written.replace("-", "_")
        if inner_table in section.tables and _is_empty(leaf.value):
            self._keep(table.settings, inner_table, {}, f"[{table.title}.{written}]", leaf)
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
        where = leaf.where or _where(table, written, _shown_value(found, written, leaf.value))
        for name, value in self._values(found, leaf, where).items():
            self._keep(table.settings, name, value, where, leaf)

    def _values(self, found: Meaning, leaf: Leaf, where: str) -> dict[str, Any]:
        """Return name -> value. All values are broken if the written value is wrong."""
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
                self._warn_if_exposed(values[PRIVATE_KEY], leaf, where)
        except ValueError as error:
            self._problems.add(leaf.origin, where, str(error))
            return dict.fromkeys(found.names, BROKEN)
        protected = {
            name: protect("" if found.is_open else name, value) for name, value in values.items()
        }
        for value in protected.values():
            if found.in_file and isinstance(value, Secret):
                # A server reads its token again when the file has changed.
                value.file = leaf.text or leaf.value
        return protected

    def _from_file(self, leaf: Leaf, where: str) -> str:
        path = leaf.text or leaf.value
        text = self._read_secret(path)
        self._warn_if_exposed(path, leaf, where)
        return text

    def _warn_if_exposed(self, path: str, leaf: Leaf, where: str) -> None:
        """Warn of a file with a secret that other users may read."""
        exposure = self._exposure_of(path)
        if exposure is not None:
            self.warnings[f"{leaf.origin}: {where}: {exposure}"] = None

    def _add_spark_property(self, leaf: Leaf) -> None:
        name = ".".join(leaf.path[2:])
        if not name:
            self._expect_table(leaf, "[spark.conf]")
            return
        is_allowed = isinstance(leaf.value, str | bool | int | float)
        value = protect_spark(name, leaf.value) if is_allowed else leaf.value
        where = f"[spark] conf.{name} = {shown(f'conf.{name}', value)}"
        problem = leaf.problem or SPARK_REFUSED.get(name)
        if problem is None and not is_allowed:
            problem = "expected a string, a number or a boolean"
        if problem:
            self._problems.add(leaf.origin, where, problem)
        else:
            self._keep(self.spark_conf, name, value, where, leaf)

    def _keep(
        self, settings: dict[str, Setting], name: str, value: Any, where: str, leaf: Leaf
    ) -> None:
        """Replace the setting of a lower layer. Two different values in one layer are a problem."""
        old = settings.get(name)
        if old is None or old.layer != self._number:
            settings[name] = Setting(value, where, leaf.origin, self._number, old)
        elif BROKEN in (old.value, value):
            # A broken value has been reported already. It must not be reported as a conflict, too.
            settings[name] = Setting(value, where, leaf.origin, self._number, old.below)
        elif old.value != value:
            # A layer may write one setting in two spellings: group_id and group.id. We cannot tell
            # which one was meant, so they must agree.
            self._problems.add(leaf.origin, where, f"{old.where} ({old.origin}) has another value")


def _where(table: Table, written: str, value: str) -> str:
    section = f"[{table.title}] " if table.title else ""
    return f"{section}{written} = {value}"


def _shown_value(found: Meaning, written: str, value: Any) -> str:
    if found.in_file:
        # The path of a file is not a secret, and is useful only in full.
        return shown("", value, limit=500)
    return shown("" if found.is_open else written, value)


def _is_empty(value: Any) -> bool:
    """Return whether *value* is a table without keys, which YAML reads as None."""
    return value is None or value == {}


@dataclass(frozen=True, slots=True)
class View:
    """The settings in effect for a channel: its own, else those of ``[kafka]``, else defaults."""

    section: Section
    table: Table
    kafka: Mapping[str, Setting]

    def __getitem__(self, name: str) -> Any:
        """Return the value in effect.

        It is None for a raw property that was not given, and for a broken value without a default.
        """
        setting = self.setting(name)
        if setting is not None and setting.value is not BROKEN:
            return setting.value
        key = self.section.keys.get(name) or KAFKA.keys.get(name)
        return None if key is None else key.parsed_default

    def setting(self, name: str) -> Setting | None:
        """Return what was given for *name*: by the channel, else by [kafka]; else None."""
        nearest = self.table.settings.get(name) or self.kafka.get(name)
        if nearest is None or name not in NOT_INHERITED_BY_RANGES:
            return nearest
        if name == "group_id" and nearest.value is False:
            return None
        if self.has_ranges:
            return self._next_to_ranges(name)
        return nearest

    @property
    def has_ranges(self) -> bool:
        """Whether the channel reads at least one range of offsets or of times."""
        return "assign" in self.sources and any(map(_has_end, self["assign"] or ()))

    def _next_to_ranges(self, name: str) -> Setting | None:
        """Return what was given for *name* in the table and the layer that ``assign`` is from."""
        layer = self.table.settings["assign"].layer
        setting = self.table.settings.get(name)
        while setting is not None and setting.layer > layer:
            setting = setting.below
        if setting is None or setting.layer < layer or setting.value is False:
            return None
        return setting

    @property
    def group_not_inherited(self) -> Setting | None:
        """The group that the channel's ranges would have if ranges inherited groups."""
        nearest = self.table.settings.get("group_id") or self.kafka.get("group_id")
        if nearest is None or not nearest.value or self.setting("group_id") is not None:
            return None
        return nearest

    def own(self, name: str) -> bool:
        """Return whether the channel's own table has the key."""
        return name in self.table.settings

    def differs(self, name: str) -> bool:
        """Return whether the channel's own table has the key, and not with the default."""
        return self.own(name) and self[name] != self.section.keys[name].parsed_default

    def nearest(self, *names: str) -> tuple[str, ...]:
        """Return those of *names* that the highest layer with any of them gives.

        For keys that exclude each other: a higher layer chooses between them.
        """
        layers = {name: self.table.settings[name].layer for name in names if self.own(name)}
        return tuple(name for name, layer in layers.items() if layer == max(layers.values()))

    @property
    def sources(self) -> tuple[str, ...]:
        """The keys in effect that say what the channel reads. Empty: the topic of its own name."""
        return self.nearest("topic", "topics", "pattern", "assign")

    @property
    def commit_strategy(self) -> str:
        """The commit strategy in effect.

        By default it is ``ignore`` with ``enable_auto_commit``, and for ranges without a group.
        """
        if self.setting("commit_strategy") is None:
            if self["enable_auto_commit"]:
                return "ignore"
            has_only_ranges = "assign" in self.sources and all(
                map(_has_end, self["assign"] or (None,))
            )
            if has_only_ranges and self.setting("group_id") is None:
                return "ignore"
        return str(self["commit_strategy"])

    @property
    def is_spark(self) -> bool:
        """Whether the channel has a ``spark`` table of its own."""
        return bool(self.own_inside("spark"))

    def fields(self, table: str = "") -> dict[str, Any]:
        """Return field -> value in effect, for the section's settings or for a table inside it."""
        found = {}
        for name, key in self.section.keys.items():
            inside, _, field_name = key.target.rpartition(".")
            if key.target and inside == table:
                found[field_name] = self[name]
        return found

    def given(self) -> dict[str, Setting]:
        """Return name -> what was given. The channel's own settings win over those of [kafka]."""
        given = {**self.kafka, **self.table.settings}
        for name in NOT_INHERITED_BY_RANGES:
            if name in given:
                in_effect = self.setting(name)
                if in_effect is None:
                    del given[name]
                else:
                    given[name] = in_effect
        return given

    def inside(self, table: str) -> dict[str, Setting]:
        """Return what was given inside a table; the names are without that of the table."""
        prefix = f"{table}."
        return {
            name.removeprefix(prefix): setting
            for name, setting in self.given().items()
            if name.startswith(prefix)
        }

    def own_inside(self, table: str) -> list[Setting]:
        """Return what the channel's own configuration says in a table, or for it."""
        return [
            setting
            for name, setting in self.table.settings.items()
            if name.partition(".")[0] == table
        ]

    def places(self) -> dict[str, str]:
        """Return key -> where it was given and its value as it may be shown, for errors."""
        return {
            name: f"{setting.origin}: {setting.where}" for name, setting in self.given().items()
        }


def _has_end(assigned: Any) -> bool:
    """Return whether an item of ``assign`` is a range of offsets or of times."""
    return getattr(assigned, "until", None) is not None
