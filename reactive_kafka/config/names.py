"""What a written key means in the section where it stands, or why it means nothing there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from reactive_kafka.config import client_properties as client
from reactive_kafka.config.client_properties import Side, refusal
from reactive_kafka.config.keys import CHANNEL_SECTIONS, KAFKA, KAFKA_SPELLINGS, PLAIN_SECTIONS, Section
from reactive_kafka.config.values import Kind, did_you_mean

_SECTIONS = (*PLAIN_SECTIONS.values(), *CHANNEL_SECTIONS.values())


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a written key stands for.

    Args:
        names: Our name of it, or aiokafka's; several for a property that says several things at once.
        kind: What it may hold.
        values: Parsed value -> name -> value.
        in_file: The value is the path of a file that holds the real one.
        is_open: The value is not a secret, even if its name looks like one.
    """

    names: tuple[str, ...]
    kind: Kind[Any]
    values: Callable[[Any], Mapping[str, Any]]
    in_file: bool = False
    is_open: bool = False


class NoMeaning(ValueError):
    """The key means nothing here; the text says what to do instead.

    Args:
        meant: The names that were probably meant, so that they are not reported as missing too.
    """

    def __init__(self, reason: str, meant: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.meant = meant


class _Place(NamedTuple):
    """Where a name stands: in a section, or in a table inside it that takes raw properties of its own client."""

    table: str  # "", or the table's name with a dot
    name: str
    sides: frozenset[Side]


def meaning(section: Section, path: tuple[str, ...]) -> Meaning:
    """What the key at *path* (its parts inside the section, as written) stands for.

    Raises:
        NoMeaning: It is unknown, belongs elsewhere, is not supported yet, or aiokafka has no equivalent.
    """
    written = ".".join(path)
    name = _own_name(written)
    table, _, rest = written.partition(".")
    if (free := _own_name(table)) in section.free and rest:
        return _free(section, free, rest)
    if found := _known(section, name) or _in_file(section, name):
        return found
    if section.sides and (instead := refusal(_place(section, name).name)):
        raise NoMeaning(f"aiokafka has no such property; {instead}")
    if name == "transactional" and name in section.later:
        return _NO_TRANSACTIONS
    raise _later(section, name) or _misplaced(section, name) or _unknown(section, written)


def _own_name(written: str) -> str:
    name = written.replace("-", "_")
    return KAFKA_SPELLINGS.get(name, name)


def _place(section: Section, name: str) -> _Place:
    table, _, rest = name.partition(".")
    if rest and table in section.clients:
        return _Place(f"{table}.", _own_name(rest), section.clients[table])
    return _Place("", name, section.sides)


def _known(section: Section, name: str) -> Meaning | None:
    table, name, sides = _place(section, name)
    if key := section.keys.get(table + name):
        return Meaning((key.name,), key.kind, lambda parsed: {key.name: parsed})
    prop = client.find(name)
    if prop is None or not prop.sides & sides:
        return None
    names = tuple(table + part for part in prop.names)
    return Meaning(names, prop.kind, lambda parsed: {table + part: one for part, one in prop.values(parsed).items()})


def _in_file(section: Section, name: str) -> Meaning | None:
    found = _known(section, _own_name(name[: -len("_file")])) if name.endswith(("_file", ".file")) else None
    return replace(found, in_file=True) if found is not None and found.kind.free else None


def _free(section: Section, table: str, written: str) -> Meaning:
    """A key of the user's own: the name of an exception, spelled as in Python."""
    if not all(part.isidentifier() for part in written.split(".")):
        raise NoMeaning('expected the name of an exception as key: "ValueError", "package.module.SomeError"')
    name = f"{table}.{written}"
    return Meaning((name,), section.free[table], lambda parsed: {name: parsed}, is_open=True)


# transactional = false is what happens anyway, so a file that a later version shares may say it. Any other value would
# promise what this version cannot do.
def _read_false(raw: Any) -> bool:
    if raw is not False:
        raise ValueError("not false")
    return raw


_NO_TRANSACTIONS = Meaning((), Kind("false: transactions are not supported yet", _read_false), lambda _: {})


def _later(section: Section, name: str) -> NoMeaning | None:
    """The error for a key, or a table, of a later version."""
    known = next((key for key in section.later if f"{name}.".startswith(f"{key}.")), None)
    instead = section.later.get(known or "")
    return NoMeaning("not supported yet" + (f"; {instead}" if instead else "")) if known else None


def _misplaced(section: Section, name: str) -> NoMeaning | None:
    """The error for a key that another section has."""
    table = name.split(".")[0]
    if name in section.tables:
        return NoMeaning(f"expected a table: [{section.title}.{name}]")
    if table in section.keys:
        return NoMeaning(f"expected {section.keys[table].kind.expects}, not a table", (table,))
    channels_first = (*CHANNEL_SECTIONS.values(), *PLAIN_SECTIONS.values())
    homes = [f"[{other.title}]" for other in channels_first if _known(other, name) or _in_file(other, name)]
    return NoMeaning(f"does not belong here but in {' or '.join(homes)}") if homes else None


def _unknown(section: Section, written: str) -> NoMeaning:
    """The error for a key that nobody knows: the one probably meant, else all that are allowed."""
    table, name, sides = _place(section, written.replace("-", "_"))
    if table and (prop := client.find(name)):
        return NoMeaning(f"a property of {''.join(prop.sides)}s, and this is a table of {''.join(sides)} properties")
    name = name if table else written
    own = [key.removeprefix(table) for key in (*section.keys, *section.free) if key.startswith(table)]
    properties = client.names_like(name) if sides else []
    if table:
        properties = [one for one in properties if (prop := client.find(one)) and prop.sides & sides]
    near = did_you_mean(name, (*properties, *own, *(() if table else section.later)))
    if near := near or did_you_mean(written.partition(".")[0], section.free):
        return NoMeaning(f"unknown key; did you mean {near!r}?", _names_of(section, table + near))
    if not table and (inside := [key for key in own if key.startswith(f"{written.partition('.')[0]}.")]):
        return NoMeaning(f"unknown key; allowed are {', '.join(inside)}")
    whose = f"the client properties of a {''.join(sides)}" if table else "Kafka's client properties"
    return NoMeaning(f"unknown key; allowed are {', '.join(own)}" + (f", and {whose}" if sides else ""))


def _names_of(section: Section, name: str) -> tuple[str, ...]:
    try:
        return meaning(section, (name,)).names
    except NoMeaning:
        return ()


def unknown_section(name: str) -> str:
    """What is wrong with a table (or a loose key) at the top that is none of ours."""
    if near := did_you_mean(name, (*PLAIN_SECTIONS, *CHANNEL_SECTIONS)):
        return f"unknown section; did you mean [{near}]?"
    if _known(KAFKA, _own_name(name)):
        return "does not belong at the top but in [kafka]"
    return f"unknown section; allowed are {', '.join(f'[{section.title}]' for section in _SECTIONS)}"
