"""Writes the tables of ``docs/configuration.md`` and ``docs/quarkus.md`` from the declared keys.

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
from reactive_kafka.config.microprofile.smallrye_attributes import (
    ATTRIBUTES,
    INCOMING,
    OUTGOING,
    Attribute,
)
from reactive_kafka.config.microprofile.smallrye_attributes import BOTH as BOTH_SIDES

_TABLES = ("retry", "restart", "dead_letter_queue", "delayed_retry", "checkpoint")
_MARKED = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def blocks() -> dict[str, str]:
    """Return block -> Markdown, for ``docs/configuration.md``."""
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
        "topics": _section(keys.TOPICS),
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
    """Return block -> Markdown, for ``docs/quarkus.md``: the attributes of SmallRye's channels."""
    head = ("attribute", "SmallRye's default", "here")
    blocks_by_name = {}
    for name, sides in (("both", BOTH_SIDES), ("incoming", INCOMING), ("outgoing", OUTGOING)):
        rows = [_attribute(attribute) for attribute in ATTRIBUTES if attribute.sides == sides]
        blocks_by_name[f"quarkus-{name}"] = _table(head, rows)
    return blocks_by_name


def _attribute(attribute: Attribute) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (attribute.name, *attribute.also))
    # Markdown would take <channel> for HTML.
    default = attribute.default.replace("<", "&lt;")
    if attribute.is_refused:
        return names, default, f"not supported: {attribute.instead}"
    return names, default, attribute.ours


def with_tables(page: str) -> str:
    """Return the page with each marked block replaced by its table."""
    tables = blocks() | quarkus_blocks()
    return _MARKED.sub(lambda match: f"{match[1]}{tables[match[2]]}\n{match[3]}", page)


def _section(section: Section, table: str = "") -> str:
    """Return the keys of the section, or of a table inside it.

    The brokers are left out: the page has them once, under [kafka].
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
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value}`"


def _property(prop: Property) -> tuple[str, str, str, str]:
    sides = "both" if prop.sides == BOTH else "".join(prop.sides)
    kafka_names = [f"`{name}`" for name in (prop.kafka, *prop.also) if "." in name]
    keywords = ", ".join(prop.names) or prop.name
    return ", ".join(kafka_names), f"`{keywords}`", sides, prop.kind.expects


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_tables(file.read_text()))
