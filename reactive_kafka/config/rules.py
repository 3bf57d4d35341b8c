"""A channel as it will run, and how contradictions in it are reported. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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

    def __getitem__(self, name: str) -> Any:
        """The value in effect. None for a raw property that was not given, and for a broken one without a default."""
        setting = self.setting(name)
        if setting is not None and setting.value is not BROKEN:
            return setting.value
        key = self.section.keys.get(name) or KAFKA.keys.get(name)
        return None if key is None else key.parsed_default

    def setting(self, name: str) -> Setting | None:
        """What was given for *name*, nearest first."""
        return self.table.settings.get(name) or self.kafka.get(name)

    def own(self, name: str) -> bool:
        """True where the channel's own table says it."""
        return name in self.table.settings

    def nearest(self, *names: str) -> tuple[str, ...]:
        """Of *names*, which exclude each other, those that the highest layer with any of them gives."""
        given = {name: self.table.settings[name].layer for name in names if self.own(name)}
        return tuple(name for name, layer in given.items() if layer == max(given.values()))

    @property
    def sources(self) -> tuple[str, ...]:
        """The keys in effect that say what the channel reads; none if its name decides."""
        return self.nearest("topic", "topics", "pattern", "assign")

    @property
    def commit_strategy(self) -> str:
        """The commit strategy in effect: ``ignore`` where the client commits and nothing else was said."""
        if self.setting("commit_strategy") is None and self["enable_auto_commit"]:
            return "ignore"
        return str(self["commit_strategy"])

    @property
    def is_spark(self) -> bool:
        """True where the channel has a ``spark`` table of its own."""
        return bool(self.own_inside("spark"))

    def fields(self, table: str = "") -> dict[str, Any]:
        """Field -> value in effect, of the section's settings, or of those of a table inside it."""
        targets = {name: key.target.rpartition(".") for name, key in self.section.keys.items() if key.target}
        return {field: self[name] for name, (inside, _, field) in targets.items() if inside == table}

    def given(self) -> dict[str, Setting]:
        """Name -> what was given for it, the channel's over those of ``[kafka]``."""
        return {**self.kafka, **self.table.settings}

    def inside(self, table: str) -> dict[str, Setting]:
        """The same for the keys of a table inside it, without the table's name."""
        prefix = f"{table}."
        return {name.removeprefix(prefix): one for name, one in self.given().items() if name.startswith(prefix)}

    def own_inside(self, table: str) -> list[Setting]:
        """What the channel itself says in, or of, a table inside it."""
        return [setting for name, setting in self.table.settings.items() if name.partition(".")[0] == table]

    def places(self) -> dict[str, str]:
        """Key -> where it was given and what stands there, as it may be shown."""
        return {name: f"{setting.origin}: {setting.where}" for name, setting in self.given().items()}


Contradictions = Iterator[tuple[Sequence[str], str]]
"""The names that a contradiction looks at, and what is wrong. It is reported at the first of them that was given."""


def check(
    view: View,
    checks: Iterable[Callable[[View], Contradictions]],
    problems: Problems,
    among: Container[str] | None = None,
) -> None:
    """Note each contradiction between values that were given; with *among*, only those that look at one of these."""
    for names, reason in chain.from_iterable(found(view) for found in checks):
        given = [setting for name in names if (setting := view.setting(name)) is not None]
        if not given or any(setting.value is BROKEN for setting in given):
            continue
        if among is not None and not any(name in among for name in names):
            continue
        is_own = view.section in CHANNEL_SECTIONS.values() and any(view.own(name) for name in names)
        for_whom = f" (channel {view.table.title})" if is_own and view.table.title else ""  # else once for all channels
        problems.add(given[0].origin, given[0].where, reason + for_whom)
