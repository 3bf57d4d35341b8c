"""The tables of ``docs/configuration.md``, made from the settings and the client properties.

``python -m reactive_kafka.config.reference docs/configuration.md`` rewrites them between their markers.
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

_MARKED = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def blocks() -> dict[str, str]:
    """Name of a block -> its Markdown."""
    own = ("bootstrap_servers", "allow_insecure_sasl")
    return {
        "kafka": _keys(keys.KAFKA.keys[name] for name in own),
        "incoming": _section(keys.INCOMING, ""),
        "retry": _section(keys.INCOMING, "retry."),
        "restart": _section(keys.INCOMING, "restart."),
        "dead-letter-queue": _section(keys.INCOMING, "dead_letter_queue."),
        "delayed-retry": _section(keys.INCOMING, "delayed_retry."),
        "checkpoint": _section(keys.INCOMING, "checkpoint."),
        "incoming-spark": _section(keys.INCOMING, "spark."),
        "outgoing": _section(keys.OUTGOING, ""),
        "spark": _section(keys.SPARK, ""),
        "http": _section(keys.HTTP, ""),
        "client": _table(("Kafka's name", "aiokafka's name", "of", "takes"), map(_property, PROPERTIES)),
        "refused": _table(("property", "instead"), ((f"`{name}`", why) for name, why in REFUSED.items())),
        "later": _table(("key", "where", "meanwhile"), _later()),
    }


def with_tables(page: str) -> str:
    """The page with each marked block replaced by its table."""
    tables = blocks()
    return _MARKED.sub(lambda match: f"{match[1]}{tables[match[2]]}\n{match[3]}", page)


def _section(section: Section, prefix: str) -> str:
    """The keys of the table *prefix*, without the brokers, which [kafka] documents for every channel."""
    own = [key for key in section.keys.values() if key is not keys.BOOTSTRAP_SERVERS]
    return _keys(key for key in own if key.name.rpartition(".")[0] == prefix.rstrip("."))


def _keys(section: Iterable[Key]) -> str:
    return _table(("key", "default", "takes", "meaning"), map(_key, section))


def _key(key: Key) -> tuple[str, str, str, str]:
    default = "" if key.default is None else f"`{_literal(key.default)}`"
    return f"`{key.name.rpartition('.')[2]}`", default, key.kind.expects, key.doc


def _literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _property(prop: Property) -> tuple[str, str, str, str]:
    sides = "both" if prop.sides == BOTH else "".join(prop.sides)
    kafka = [f"`{name}`" for name in (prop.kafka, *prop.also) if "." in name]
    return ", ".join(kafka), f"`{', '.join(prop.names) or prop.name}`", sides, prop.kind.expects


def _later() -> Iterable[tuple[str, str, str]]:
    sections = (keys.INCOMING, keys.OUTGOING, keys.SPARK)
    return ((f"`{name}`", f"`[{section.title}]`", note) for section in sections for name, note in section.later.items())


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_tables(file.read_text()))
