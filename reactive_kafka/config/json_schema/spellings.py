"""The tables of a JSON Schema: each key in every way that it may be written, flat and nested. Pure.

What is ``session.timeout.ms`` to Kafka is ``session_timeout_ms`` to aiokafka,
``session-timeout-ms`` to those who like hyphens, and in TOML a table in a table. An editor offers
the first two; the others are patterns.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.config.json_schema.value_schemas import Schema, either

WITHIN = "_"
DOT = "."
ANY = "*"
TABLE = "["
"""Between two words of a key: inside of a name; a dot; any separator of a raw property; a table of
ours and its key.
"""
_WRITTEN = {WITHIN: "_-", DOT: ".", ANY: "._-", TABLE: "."}
_MATCHED = {WITHIN: "[_-]", DOT: r"\.", ANY: "[._-]", TABLE: r"\."}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to write a key."""

    words: tuple[str, ...]
    # One less.
    joints: tuple[str, ...]
    value: Schema
    # The spellings that an editor offers.
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Iterable[str], joint: str, value: Schema, *names: str) -> Way:
        """One with the same between all of its words."""
        all_words = tuple(words)
        return cls(all_words, (joint,) * (len(all_words) - 1), value, names)

    def inside(self, table: str) -> Way:
        """The same key in a table of ours."""
        words = tuple(table.split("_"))
        joints = ((WITHIN,) * (len(words) - 1)) + (TABLE,)
        return Way(words + self.words, joints + self.joints, self.value, self.names)

    def in_a_file(self, value: Schema, *names: str) -> Way:
        """The key that names a file with the value in it."""
        return Way((*self.words, "file"), (*self.joints, ANY), value, names)

    def heads(self) -> Iterator[_Head]:
        """What of it may be a key: all of it, or its first words where the others stand in a
        table.
        """
        for length, joint in enumerate((*self.joints, ""), 1):
            if joint != WITHIN:
                yield _Head(self, length, joint)


@dataclass(frozen=True, slots=True)
class _Head:
    """The first words of a way, and what follows them."""

    way: Way
    length: int
    # empty: they are all of it.
    joint: str

    @property
    def name(self) -> str:
        return "_".join(self.way.words[: self.length])

    @property
    def offered(self) -> tuple[str, ...]:
        """The spellings that an editor offers."""
        if self.joint == TABLE:
            return (self.name,)
        return () if self.joint or TABLE in self.way.joints else self.way.names

    @property
    def rest(self) -> Way:
        """What stands in the table that the head names."""
        names = self.way.names if self.joint == TABLE else ()
        return Way(
            self.way.words[self.length :], self.way.joints[self.length :], self.way.value, names
        )

    def spelled(self, between: Mapping[str, str]) -> Iterator[str]:
        """The words with each of what may stand between them."""
        choices = [between[joint] for joint in self.way.joints[: self.length - 1]]
        for joints in itertools.product(*choices):
            yield "".join(
                itertools.chain.from_iterable(zip(self.way.words, (*joints, ""), strict=False))
            )

    @property
    def pattern(self) -> str:
        """All its spellings, as a regular expression."""
        joints = (*(_MATCHED[joint] for joint in self.way.joints[: self.length - 1]), "")
        return "".join(itertools.chain.from_iterable(zip(self.way.words, joints, strict=False)))


@dataclass(slots=True)
class _Key:
    """All that the spellings of one pattern stand for: values, or tables with the rest of keys."""

    name: str
    spellings: frozenset[str]
    values: list[Schema] = field(default_factory=list)
    rests: list[Way] = field(default_factory=list)
    # A table of ours, which may be empty.
    is_ours: bool = False

    def add(self, head: _Head) -> None:
        if not head.joint:
            self.values.append(head.way.value)
            return
        self.rests.append(head.rest)
        self.is_ours |= head.joint == TABLE


@dataclass(slots=True)
class Definitions:
    """The ``$defs`` of a schema; what is alike stands there once."""

    schemas: dict[str, Schema] = field(default_factory=dict)
    # Content -> name.
    _names: dict[str, str] = field(default_factory=dict)

    def ref(self, name: str, schema: Schema) -> Schema:
        """A reference to *schema*, which is kept under *name* unless it is there already."""
        content = json.dumps(schema)
        if content not in self._names:
            names = itertools.chain((name,), (f"{name}-{number}" for number in itertools.count(2)))
            self._names[content] = next(free for free in names if free not in self.schemas)
            self.schemas[self._names[content]] = schema
        return {"$ref": f"#/$defs/{self._names[content]}"}

    def table(
        self,
        where: str,
        ways: Iterable[Way],
        further: Mapping[str, Schema] | None = None,
        *,
        may_be_empty: bool = True,
    ) -> dict[str, Any]:
        """The schema of a table with these keys, and *further* patterns of keys."""
        keys: dict[str, _Key] = {}
        named: dict[str, None] = {}
        for head in itertools.chain.from_iterable(way.heads() for way in ways):
            pattern = head.pattern
            if pattern not in keys:
                keys[pattern] = _Key(head.name, frozenset(head.spelled(_WRITTEN)))
            keys[pattern].add(head)
            named |= dict.fromkeys(head.offered)
        spelled: dict[str, list[_Key]] = {}
        for key in keys.values():
            for spelling in key.spellings:
                spelled.setdefault(spelling, []).append(key)
        # What two patterns match must fit either of them, not both: retry.backoff, and the table of
        # retry.backoff.ms.
        named |= dict.fromkeys(
            sorted(spelling for spelling, meant in spelled.items() if len(meant) > 1)
        )
        others = {
            _pattern(pattern, key.spellings & named.keys()): key
            for pattern, key in keys.items()
            if key.spellings - named.keys()
        }
        return {
            "type": ["object", "null"] if may_be_empty else "object",
            **({} if may_be_empty else {"minProperties": 1}),
            "properties": {name: self._meant(where, spelled[name]) for name in named},
            "patternProperties": {
                pattern: self._meant(where, [key]) for pattern, key in others.items()
            }
            | dict(further or {}),
            "additionalProperties": False,
        }

    def _meant(self, where: str, keys: list[_Key]) -> Schema:
        """What stands behind the keys that one spelling may be."""
        found = [value for key in keys for value in key.values]
        if rests := [rest for key in keys for rest in key.rests]:
            name = f"{where}.{keys[0].name}"
            found.append(
                self.ref(
                    name, self.table(name, rests, may_be_empty=any(key.is_ours for key in keys))
                )
            )
        return found[0] if len(found) == 1 else either(*found)


def _pattern(pattern: str, without: Iterable[str]) -> str:
    """The whole pattern, but for the spellings *without*."""
    return f"^{''.join(f'(?!{re.escape(name)}$)' for name in sorted(without))}{pattern}$"
