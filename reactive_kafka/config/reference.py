"""Writes the tables of ``docs/configuration.md`` and ``docs/quarkus.md`` from the declared keys.

``python -m reactive_kafka.config.reference docs/configuration.md docs/quarkus.md`` rewrites them
between their markers.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import BOTH, PROPERTIES, Property, form
from reactive_kafka.config.fields import Key
from reactive_kafka.config.keys import Section
from reactive_kafka.config.microprofile.smallrye_attributes import (
    ATTRIBUTES,
    INCOMING,
    OUTGOING,
    Attribute,
)
from reactive_kafka.config.microprofile.smallrye_attributes import BOTH as BOTH_SIDES
from reactive_kafka.config.settings import FORMAT, KEY_FORMAT, METADATA_FORMAT

_INCOMING = {
    "incoming": "topic",
    "incoming-formats": "value_deserializer",
    "incoming-commits": "commit_strategy",
    "incoming-failures": "unprocessed_record_max_age",
    "incoming-handling": "ordering",
    "incoming-limits": "max_in_flight",
    "incoming-metadata": "keep_out_of_order_acks",
}
"""Block of [incoming.X] -> its first key. A block ends where the next one begins."""

EXPLAINED_ONCE = {
    ': "500ms", "5s", "2m", "1h" or seconds as a number': "",
    ': "64KiB", "1MB" or bytes as a number': "",
    ": letters, digits, dot, underscore and hyphen, at most 249": "",
    "a whole number of milliseconds of at least": "milliseconds, at least",
    "a whole number of bytes of at least": "bytes, at least",
    "a whole number of at least 0": "0 or more",
    "a whole number of at least 1": "1 or more",
    "a whole number from": "from",
    "a list of different": "a list of",
    "true or false": "boolean",
    "a string that is not empty": "text",
    "the name of a topic": "a topic",
    "a regular expression that matches whole topic names": "a regular expression of whole names",
    "a number of records, above 0, in a second, a minute or an hour": "a rate",
    ', several with commas or as a list, or "': ', several, or "',
    ", or one with the scheme of a store of your own": "",
    " (a dataclass, pydantic model or msgspec Struct)": "",
    " (an object with encode(state) and decode(text))": "",
    "; JKS and PKCS12 stores cannot be read here": "",
    "; it is not shown here": "",
    '; only the list ["cooperative-sticky"] makes rebalances cooperative': "",
    FORMAT.expects: "a format",
    KEY_FORMAT.expects: "a key format",
    METADATA_FORMAT.expects: "a plain format",
}
"""Part of what a key takes -> what the tables say instead. The page, or the page about the subject,
explains each once."""

_ASSIGN_TAKES = "a list of partitions, see below"
_TABLES = ("rate_limit", "retry", "restart", "dead_letter_queue", "delayed_retry", "checkpoint")
_MARKED = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def blocks() -> dict[str, str]:
    """Return block -> Markdown, for ``docs/configuration.md``."""
    return {
        "kafka": _keys([keys.BOOTSTRAP_SERVERS, keys.KAFKA.keys["allow_insecure_sasl"]]),
        "formats": _formats(),
        **_incoming_blocks(),
        **{table.replace("_", "-"): _section(keys.INCOMING, table) for table in _TABLES},
        "incoming-spark": _section(keys.INCOMING, "spark"),
        "outgoing": _section(keys.OUTGOING),
        "cloud-events": _section(keys.OUTGOING, "cloud_events"),
        "schema": _section(keys.OUTGOING, "schema"),
        "schema-registry": _section(keys.SCHEMA_REGISTRY),
        "tracing": _section(keys.TRACING),
        "memory": _section(keys.MEMORY),
        "limits": _section(keys.LIMITS),
        "topics": _section(keys.TOPICS),
        "spark": _section(keys.SPARK),
        "http": _section(keys.HTTP),
        "client": _client_properties(),
    }


def _formats() -> str:
    """Return what the names of formats are, each list once."""
    all_formats = re.findall('"([^"]+)"', FORMAT.expects)
    lines = [f"*a format*: {FORMAT.expects}"]
    for kind in (KEY_FORMAT, METADATA_FORMAT):
        allowed = re.findall('"([^"]+)"', kind.expects)
        missing = [f'"{name}"' for name in all_formats if name not in allowed]
        lines.append(f"*{EXPLAINED_ONCE[kind.expects]}*: the same without {', '.join(missing)}")
    return "\n".join(textwrap.fill(f"- {line}", 120, subsequent_indent="  ") for line in lines)


def _incoming_blocks() -> dict[str, str]:
    """Return the tables of [incoming.X], by theme."""
    own = [key for key in _own_keys(keys.INCOMING) if "." not in key.name]
    names = [key.name for key in own]
    starts = [names.index(first) for first in _INCOMING.values()]
    ends = [*starts[1:], len(own)]
    return {
        block: _keys(own[start:end])
        for block, start, end in zip(_INCOMING, starts, ends, strict=True)
    }


def quarkus_blocks() -> dict[str, str]:
    """Return block -> Markdown, for ``docs/quarkus.md``: the attributes of SmallRye's channels."""
    blocks_by_name = {}
    for name, sides in (("both", BOTH_SIDES), ("incoming", INCOMING), ("outgoing", OUTGOING)):
        attributes = [attribute for attribute in ATTRIBUTES if attribute.sides == sides]
        blocks_by_name[f"quarkus-{name}"] = _attributes(attributes)
    return blocks_by_name


def _attributes(attributes: Iterable[Attribute]) -> str:
    """Return the attributes that have an equal here; errors explain the others."""
    same: list[str] = []
    others: list[tuple[str, str]] = []
    for attribute in attributes:
        names = ", ".join(f"`{name}`" for name in (attribute.name, *attribute.also))
        if attribute.is_refused:
            continue
        if not attribute.also and form(attribute.name) == form(attribute.ours):
            same.append(names)
        else:
            others.append((names, attribute.ours))
    kept = _filled(f"With the same name, apart from hyphens and dots: {', '.join(same)}.")
    return f"{kept}\n\n{_table(('attribute', 'here'), others)}"


def with_tables(page: str) -> str:
    """Return the page with each marked block replaced by its table."""
    tables = blocks() | quarkus_blocks()
    return _MARKED.sub(lambda match: f"{match[1]}{tables[match[2]]}\n{match[3]}", page)


def _section(section: Section, table: str = "") -> str:
    """Return the keys of the section, or of a table inside it."""
    return _keys(key for key in _own_keys(section) if key.name.rpartition(".")[0] == table)


def _own_keys(section: Section) -> list[Key]:
    """Return the keys of the section.

    The brokers are left out: the page has them once, under [kafka].
    """
    return [key for key in section.keys.values() if key is not keys.BOOTSTRAP_SERVERS]


def _keys(section: Iterable[Key]) -> str:
    rows = ((f"`{key.name.rpartition('.')[2]}`", _takes(key), key.doc) for key in section)
    return _table(("key", "takes (default)", "meaning"), rows)


def _takes(key: Key) -> str:
    """Return what the key takes, with its default in brackets if it has one."""
    takes = _ASSIGN_TAKES if key.name == "assign" else _shortened(key.kind.expects)
    if key.default is None:
        return takes
    return f"{takes} ({_default(key.default)})"


def _shortened(expects: str) -> str:
    for phrase, short in EXPLAINED_ONCE.items():
        expects = expects.replace(phrase, short)
    return expects.removeprefix("one of ")


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False)


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value}`"


def _client_properties() -> str:
    """Return a row for all properties of the same clients that take the same."""
    rows: dict[tuple[str, str], list[str]] = {}
    for prop in PROPERTIES:
        of = "both" if prop.sides == BOTH else "".join(prop.sides)
        rows.setdefault((of, _shortened(prop.kind.expects)), []).append(_names(prop))
    return _table(
        ("of", "takes", "properties"),
        ((of, takes, ", ".join(names)) for (of, takes), names in rows.items()),
    )


def _names(prop: Property) -> str:
    """Return Kafka's names, and aiokafka's where it is another one."""
    kafka_names = [name for name in (prop.kafka, *prop.also) if "." in name]
    keywords = prop.names or (prop.name,)
    if not kafka_names:
        return ", ".join(f"`{keyword}`" for keyword in keywords)
    listed = " or ".join(f"`{name}`" for name in kafka_names)
    if len(keywords) == 1 and form(prop.kafka) == keywords[0]:
        return listed
    return f"{listed} ({', '.join(f'`{keyword}`' for keyword in keywords)})"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_tables(file.read_text()))
