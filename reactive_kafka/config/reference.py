"""The tables of ``docs/configuration.md`` and ``docs/quarkus.md``, made from what the loader goes
by.

``python -m reactive_kafka.config.reference docs/configuration.md docs/quarkus.md`` rewrites them
between their markers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import BOTH, PROPERTIES, REFUSED, Property
from reactive_kafka.config.fields import Key
from reactive_kafka.config.keys import Section
from reactive_kafka.config.microprofile.attributes import ATTRIBUTES, INCOMING, OUTGOING, Attribute
from reactive_kafka.config.microprofile.attributes import BOTH as BOTH_SIDES

_TABLES = ("retry", "restart", "dead_letter_queue", "delayed_retry", "checkpoint")
_MARKED = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def blocks() -> dict[str, str]:
    """Name of a block -> its Markdown."""
    return {
        "kafka": _keys([keys.BOOTSTRAP_SERVERS, keys.KAFKA.keys["allow_insecure_sasl"]]),
        "incoming": _section(keys.INCOMING),
        **{table.replace("_", "-"): _section(keys.INCOMING, table) for table in _TABLES},
        "incoming-spark": _section(keys.INCOMING, "spark"),
        "outgoing": _section(keys.OUTGOING),
        "cloud-events": _section(keys.OUTGOING, "cloud_events"),
        "schema": _section(keys.OUTGOING, "schema"),
        "schema-registry": _section(keys.SCHEMA_REGISTRY),
        "tracing": _section(keys.TRACING),
        "memory": _section(keys.MEMORY),
        "spark": _section(keys.SPARK),
        "http": _section(keys.HTTP),
        "client": _table(
            ("Kafka's name", "aiokafka's name", "of", "takes"), map(_property, PROPERTIES)
        ),
        "refused": _table(
            ("property", "instead"), ((f"`{name}`", why) for name, why in REFUSED.items())
        ),
    }


def quarkus_blocks() -> dict[str, str]:
    """The same, of the attributes of SmallRye's channels."""
    head = ("attribute", "SmallRye's default", "here")
    sides = {"both": BOTH_SIDES, "incoming": INCOMING, "outgoing": OUTGOING}
    return {
        f"quarkus-{name}": _table(head, (_attribute(one) for one in ATTRIBUTES if one.sides == of))
        for name, of in sides.items()
    }


def _attribute(one: Attribute) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (one.name, *one.also))
    return names, one.default, f"not supported: {one.instead}" if one.is_refused else one.ours


def with_tables(page: str) -> str:
    """The page with each marked block replaced by its table."""
    tables = blocks() | quarkus_blocks()
    return _MARKED.sub(lambda match: f"{match[1]}{tables[match[2]]}\n{match[3]}", page)


def _section(section: Section, table: str = "") -> str:
    """The keys of a table inside the section, without the brokers, which [kafka] documents for
    every channel.
    """
    own = [key for key in section.keys.values() if key is not keys.BOOTSTRAP_SERVERS]
    return _keys(key for key in own if key.name.rpartition(".")[0] == table)


def _keys(section: Iterable[Key]) -> str:
    rows = (
        (f"`{key.name.rpartition('.')[2]}`", _default(key.default), key.kind.expects, key.doc)
        for key in section
    )
    return _table(("key", "default", "takes", "meaning"), rows)


def _default(value: Any) -> str:
    shown = (
        str(value).lower()
        if isinstance(value, bool)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )
    return "" if value is None else f"`{shown}`"


def _property(prop: Property) -> tuple[str, str, str, str]:
    sides = "both" if prop.sides == BOTH else "".join(prop.sides)
    kafka = [f"`{name}`" for name in (prop.kafka, *prop.also) if "." in name]
    return ", ".join(kafka), f"`{', '.join(prop.names) or prop.name}`", sides, prop.kind.expects


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_tables(file.read_text()))
