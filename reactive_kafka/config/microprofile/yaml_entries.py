"""Turns a YAML file of Quarkus into properties: tables become dots, lists become commas.

Source: ``io.smallrye.config.source.yaml.YamlConfigSource``. It merges all documents of a file; a
later one wins.
"""

from __future__ import annotations

import re
from typing import Any

from reactive_kafka.config.microprofile.properties_syntax import Entry
from reactive_kafka.config.yaml_text import yaml_documents
from reactive_kafka.errors import ConfigError

MOST_CHARACTERS = 8 * 1024 * 1024
"""The most characters of all names and values.

Each name contains those of all its tables, so a few long names could fill the memory.
"""
_SPECIAL = re.compile(r"[\\,]")
_CHANNELS = re.compile(r"(?:%[^.]*\.)?mp\.messaging\.(?:incoming|outgoing)")
_TRUE = frozenset({"yes", "true", "on"})


def yaml_entries(source: str, text: str) -> tuple[Entry, ...]:
    """Return all entries in their order. If a name is there twice, the last one counts.

    Raises:
        ConfigError: It is not YAML, has a key twice in one table, is nested or expands too far, or
            has no tables.
        MissingExtraError: PyYAML is not installed.
    """
    flat = _Flat(source)
    for root in yaml_documents(source, text):
        if root.id == "mapping":
            flat.add(root, "", 1)
        elif not _is_null(root):
            raise ConfigError(
                f"{source}, line {root.start_mark.line + 1}: expected tables such as mp: at the top"
            )
    return tuple(flat.entries)


class _Flat:
    """Collects the entries of a file."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._characters = 0
        self.entries: list[Entry] = []

    def add(self, node: Any, name: str, line: int) -> None:
        """Add the entries of *node*, the value of *name*; *line* is that of its key."""
        self._measure(name, line)
        if node.id == "mapping":
            for key, value in node.value:
                self.add(value, self._name_of(name, key, value), key.start_mark.line + 1)
        elif node.id == "scalar":
            self._put(name, _text(node), line)
        elif all(item.id == "scalar" for item in node.value):
            texts = [_SPECIAL.sub(r"\\\g<0>", _text(item)) for item in node.value]
            self._measure("", line, sum(map(len, texts)))
            self._put(name, ",".join(texts), line)
        else:
            for index, item in enumerate(node.value):
                self.add(item, f"{name}[{index}]", item.start_mark.line + 1)

    def _name_of(self, name: str, key: Any, value: Any) -> str:
        if key.id != "scalar":
            raise ConfigError(
                f"{self._source}, line {key.start_mark.line + 1}: expected a name as key"
            )
        own = "" if _is_null(key) else str(key.value)
        if not own:
            # The key ~ holds the value of the table's own name.
            return name
        if "." in own and own[0] != '"' and value.id == "mapping" and _CHANNELS.fullmatch(name):
            own = f'"{own}"'
        return f"{name}.{own}" if name else own

    def _put(self, name: str, text: str, line: int) -> None:
        self._measure(text, line)
        self.entries.append(Entry(name, text, line))

    def _measure(self, text: str, line: int, more: int = 0) -> None:
        self._characters += len(text) + more
        if self._characters > MOST_CHARACTERS:
            raise ConfigError(
                f"{self._source}, line {line}: its names and values have too many characters"
            )


def _is_null(node: Any) -> bool:
    return node.id == "scalar" and str(node.tag).endswith(":null")


def _text(node: Any) -> str:
    """Return a value as Java has it: nothing for null, true or false, anything else as written."""
    if _is_null(node):
        return ""
    if str(node.tag).endswith(":bool"):
        return "true" if node.value.lower() in _TRUE else "false"
    return str(node.value)
