"""The settings in effect, each with where it comes from, and whether it is the default. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reactive_kafka.config.collect import Setting
from reactive_kafka.config.keys import Section

DEFAULT = "default"
DERIVED = "derived"
"""The source of a value that a decorator, or the package, has chosen, and that is no default."""


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One setting of a table."""

    # With a dot for a key of a table inside: retry.max_attempts.
    name: str
    # As a configuration file would have it. Secrets are masked.
    value: Any
    # reactive-kafka.toml:12, "environment variable X", "code", "default" or "derived".
    source: str
    is_default: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, without its name."""
        return {"value": self.value, "source": self.source, "default": self.is_default}


def effective_settings(
    section: Section, table: Mapping[str, Any], *given: Mapping[str, Setting]
) -> Iterator[EffectiveSetting]:
    """Yield the settings of a table of the dump, in its order.

    Args:
        section: The keys of the table, with their defaults.
        table: The table.
        given: What was written for it, the nearest first: by the channel, then by ``[kafka]``.
    """
    for name, value in _flat(table):
        written = next((found for found in (_written(name, one) for one in given) if found), None)
        key = section.keys.get(name)
        is_default = key is not None and value == _shown_default(key)
        source = DEFAULT if is_default else DERIVED
        if written is not None:
            source = _place(written)
        yield EffectiveSetting(name, value, source, is_default)


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", setting) for inner, setting in value.items())
        else:
            yield name, value


def _shown_default(key: Any) -> Any:
    default = key.parsed_default
    return None if default is None else key.kind.show(default)


def _written(name: str, given: Mapping[str, Setting]) -> Setting | None:
    """Return what was written for a setting, under its name or under one with the same meaning."""
    if name == "topics":
        return given.get("topics") or given.get("topic")
    return given.get(name)


def _place(setting: Setting) -> str:
    origin = setting.origin
    return origin.source if origin.line is None else f"{origin.source}:{origin.line}"
