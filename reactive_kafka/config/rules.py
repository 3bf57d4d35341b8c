"""How a contradiction is looked for: a channel as it will run, and rules over it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reactive_kafka.config.collect import BROKEN, Setting, Table
from reactive_kafka.config.keys import CHANNEL_SECTIONS, KAFKA, Section
from reactive_kafka.config.layers import Problems


@dataclass(frozen=True, slots=True)
class View:
    """A channel as it will run: its own settings, else those of ``[kafka]``, else the defaults."""

    section: Section
    table: Table
    kafka: Mapping[str, Setting]

    def setting(self, name: str) -> Setting | None:
        """What was given for *name*, nearest first."""
        return self.table.settings.get(name) or self.kafka.get(name)

    def own(self, name: str) -> bool:
        """True where the channel's own table says it."""
        return name in self.table.settings

    def value(self, name: str) -> Any:
        """The value in effect; None for a raw property that was not given, and for a broken one without a default."""
        setting = self.setting(name)
        if setting is not None and setting.value is not BROKEN:
            return setting.value
        key = self.section.keys.get(name) or KAFKA.keys.get(name)
        return None if key is None else key.meant

    def fields(self, table: str = "") -> dict[str, Any]:
        """Field -> value in effect, of the section's settings, or of those of a table inside it."""
        targets = {name: key.target.rpartition(".") for name, key in self.section.keys.items() if key.target}
        return {field: self.value(name) for name, (inside, _, field) in targets.items() if inside == table}

    def places(self) -> dict[str, str]:
        """Key -> where it was given and what stands there, as it may be shown."""
        given = {**self.kafka, **self.table.settings}
        return {name: f"{setting.origin}: {setting.where}" for name, setting in given.items()}

    def inside(self, name: str) -> dict[str, Setting]:
        """What was given in the table *name* inside it: key -> setting, the channel's over those of ``[kafka]``."""
        given = {**self.kafka, **self.table.settings}
        return {key.removeprefix(f"{name}."): given[key] for key in given if key.startswith(f"{name}.")}

    def own_inside(self, name: str) -> list[Setting]:
        """What the channel itself says in, or of, the table *name* inside it."""
        return [setting for key, setting in self.table.settings.items() if key.partition(".")[0] == name]

    @property
    def is_spark(self) -> bool:
        """True where a ``spark`` table stands in the channel's own."""
        return any(name.partition(".")[0] == "spark" for name in self.table.settings)


@dataclass(frozen=True, slots=True)
class Rule:
    """One contradiction.

    Args:
        names: What it looks at; the problem is reported at the first of them that was given.
        broken: The channel -> what is wrong, or None.
    """

    names: tuple[str, ...]
    broken: Callable[[View], str | None]


def check(view: View, rules: tuple[Rule, ...], problems: Problems) -> None:
    """Note each rule that the channel breaks."""
    for rule in rules:
        given = [setting for name in rule.names if (setting := view.setting(name)) is not None]
        if not given or any(setting.value is BROKEN for setting in given):
            continue
        if reason := rule.broken(view):
            is_own = view.section in CHANNEL_SECTIONS.values() and any(view.own(name) for name in rule.names)
            for_whom = f" (channel {view.table.title})" if is_own else ""  # else once for all channels
            problems.add(given[0].origin, given[0].where, reason + for_whom)
