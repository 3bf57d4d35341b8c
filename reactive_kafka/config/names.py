"""What a written key means in the section where it stands, or why it means nothing there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reactive_kafka.config import client_properties as client
from reactive_kafka.config.keys import (
    CHANNEL_SECTIONS,
    KAFKA,
    KAFKA_SPELLINGS,
    PLAIN_SECTIONS,
    Key,
    Section,
)
from reactive_kafka.config.later import LATER_DEFAULTS
from reactive_kafka.config.refused_properties import refusal
from reactive_kafka.config.values import Kind, did_you_mean

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a written key stands for.

    Args:
        names: Our name of it, or aiokafka's; several for a property that says several things at once.
        kind: What it may hold.
        values: Parsed value -> name -> value.
        in_file: The value is the path of a file that holds the real one.
        is_open: The value is no secret, whatever the name has in it.
    """

    names: tuple[str, ...]
    kind: Kind
    values: Callable[[Any], Mapping[str, Any]]
    in_file: bool = False
    is_open: bool = False


class NoMeaning(ValueError):
    """The key means nothing here; the text says what to do instead.

    Args:
        meant: The names that it was probably meant for, so that they are not reported as missing too.
        default: The value that may be written all the same, as it is what happens anyway; None: there is none.
    """

    def __init__(self, reason: str, meant: tuple[str, ...] = (), default: Any = None) -> None:
        super().__init__(reason)
        self.meant = meant
        self._default = default

    def allows(self, value: Any) -> bool:
        """True where *value* changes nothing and may stand there."""
        return self._default is not None and (type(value), value) == (type(self._default), self._default)


def meaning(section: Section, path: Path) -> Meaning:
    """What the key at *path* (its parts inside the section, as written) stands for.

    Raises:
        NoMeaning: It is unknown, belongs elsewhere, is not supported yet, or aiokafka has no equal of it.
    """
    written = ".".join(path)
    table, _, rest = written.partition(".")
    if table.replace("-", "_") in section.free and rest:
        return _free(section, table.replace("-", "_"), rest)
    name = _own_name(written)
    found = _known(section, name) or _in_file(section, name)
    if found is not None:
        return found
    if section.sides and (instead := refusal(_inside(section, name) or name)):
        raise NoMeaning(f"aiokafka has no such property; {instead}")
    later = _later(section, name)
    if later is not None:
        raise NoMeaning("not supported yet" + (f"; {later}" if later else ""), default=LATER_DEFAULTS.get(name))
    raise _misplaced(section, name) or _unknown(section, written)


def _own_name(written: str) -> str:
    name = written.replace("-", "_")
    return KAFKA_SPELLINGS.get(name, name)


def _free(section: Section, table: str, written: str) -> Meaning:
    """A key of the user's own: the name of an exception, spelled as in Python."""
    if not all(part.isidentifier() for part in written.split(".")):
        raise NoMeaning('expected the name of an exception as key: "ValueError", "package.module.SomeError"')
    name = f"{table}.{written}"
    return Meaning((name,), section.free[table], lambda parsed: {name: parsed}, is_open=True)


def _inside(section: Section, name: str) -> str | None:
    """What stands after the table's name, for a key in a table of raw client properties."""
    table, _, rest = name.partition(".")
    return rest if rest and table in section.clients else None


def _of_client(section: Section, name: str) -> Meaning | None:
    """A key or a raw property in a table that has a client of its own."""
    rest = _inside(section, name)
    if rest is None:
        return None
    table = name.partition(".")[0]
    if key := section.keys.get(f"{table}.{_own_name(rest)}"):
        return _of_key(key)
    prop = client.find(rest)
    if prop is None or not prop.sides & section.clients[table]:
        return None
    return Meaning(
        tuple(f"{table}.{part}" for part in prop.names),
        prop.kind,
        lambda parsed: {f"{table}.{part}": value for part, value in prop.values(parsed).items()},
    )


def _known(section: Section, name: str) -> Meaning | None:
    if key := section.keys.get(name):
        return _of_key(key)
    if _inside(section, name):
        return _of_client(section, name)
    prop = client.find(name)
    if prop is None or not prop.sides & section.sides:
        return None
    return Meaning(prop.names, prop.kind, prop.values)


def _of_key(key: Key) -> Meaning:
    return Meaning((key.name,), key.kind, lambda parsed: {key.name: parsed})


def _in_file(section: Section, name: str) -> Meaning | None:
    if not name.endswith(("_file", ".file")):
        return None
    found = _known(section, _own_name(name[: -len("_file")]))
    if found is None or not found.kind.free:
        return None
    return Meaning(found.names, found.kind, found.values, in_file=True)


def _later(section: Section, name: str) -> str | None:
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return next((section.later[prefix] for prefix in prefixes if prefix in section.later), None)


def _misplaced(section: Section, name: str) -> NoMeaning | None:
    """The error for a key that another section has."""
    table = name.split(".")[0]
    if name in section.tables:
        return NoMeaning(f"expected a table: [{section.title}.{name}]")
    if table in section.keys:
        return NoMeaning(f"expected {section.keys[table].kind.expects}, not a table", (table,))
    others = [other for other in (*CHANNEL_SECTIONS.values(), *PLAIN_SECTIONS.values()) if other is not section]
    homes = [f"[{other.title}]" for other in others if _known(other, name) or _in_file(other, name)]
    return NoMeaning(f"does not belong here but in {' or '.join(homes)}") if homes else None


def _unknown_inside(section: Section, table: str, rest: str) -> NoMeaning:
    """The error for a key that a table with a client of its own does not have."""
    sides = section.clients[table]
    if prop := client.find(rest):
        return NoMeaning(f"a property of {''.join(prop.sides)}s, and this is a table of {''.join(sides)} properties")
    own = [name.partition(".")[2] for name in section.keys if name.startswith(f"{table}.")]
    properties = [name for name in client.names_like(rest) if (prop := client.find(name)) and prop.sides & sides]
    near = did_you_mean(rest, (*properties, *own))
    if near is None:
        return NoMeaning(f"unknown key; allowed are {', '.join(own)}, and the client properties of a {''.join(sides)}")
    return NoMeaning(f"unknown key; did you mean {near!r}?", meaning(section, (table, near)).names)


def _unknown(section: Section, written: str) -> NoMeaning:
    if rest := _inside(section, written.replace("-", "_")):
        return _unknown_inside(section, written.replace("-", "_").partition(".")[0], rest)
    properties = client.names_like(written) if section.sides else ()
    near = did_you_mean(written, (*properties, *section.later, *section.keys))
    near = near or did_you_mean(written.partition(".")[0], section.free)
    if near is None:
        own = ", ".join((*section.keys, *section.free))
        more = ", and Kafka's client properties" if section.sides else ""
        return NoMeaning(f"unknown key; allowed are {own}{more}")
    try:
        meant = meaning(section, (near,)).names
    except NoMeaning:
        meant = ()
    return NoMeaning(f"unknown key; did you mean {near!r}?", meant)


def unknown_section(name: str) -> str:
    """The text for a table (or a loose key) at the top that is none of ours."""
    known = (*PLAIN_SECTIONS, *CHANNEL_SECTIONS)
    if near := did_you_mean(name, known):
        return f"unknown section; did you mean [{near}]?"
    if _known(KAFKA, _own_name(name)):
        return "does not belong at the top but in [kafka]"
    return f"unknown section; allowed are {', '.join(f'[{section.title}]' for section in _all_sections())}"


def _all_sections() -> tuple[Section, ...]:
    return (*PLAIN_SECTIONS.values(), *CHANNEL_SECTIONS.values())
