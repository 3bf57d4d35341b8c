"""Makes the tables of a JSON Schema, with every spelling of each key, flat and nested. Pure.

Kafka's ``session.timeout.ms`` is ``session_timeout_ms`` in aiokafka, may be written
``session-timeout-ms``, and in TOML the dots make tables in tables. The loader reads all of them, so
the schema must not call them errors. An editor offers the first two; the others are patterns.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.config.json_schema.value_schemas import Schema, either

WITHIN = "_"
DOT = "."
ANY = "*"
TABLE = "["
"""What is between two words of a key.

``WITHIN``: a separator inside of a name of ours. ``DOT``: a dot. ``ANY``: any separator of a raw
property. ``TABLE``: the dot between a table of ours and its key.
"""
_WRITTEN = {WITHIN: "_-", DOT: ".", ANY: "._-", TABLE: "."}
_MATCHED = {WITHIN: "[_-]", DOT: r"\.", ANY: "[._-]", TABLE: r"\."}


@dataclass(frozen=True, slots=True)
class Spelling:
    """The spellings of a key that differ only in the separators between its words."""

    words: tuple[str, ...]
    # What is between the words, so one less.
    joints: tuple[str, ...]
    value: Schema
    # The spellings that an editor offers.
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Iterable[str], joint: str, value: Schema, *names: str) -> Spelling:
        """Make one with the same joint between all of its words."""
        all_words = tuple(words)
        return cls(all_words, (joint,) * (len(all_words) - 1), value, names)

    def inside(self, table: str) -> Spelling:
        """Return the same key inside a table of ours."""
        words = tuple(table.split("_"))
        joints = ((WITHIN,) * (len(words) - 1)) + (TABLE,)
        return Spelling(words + self.words, joints + self.joints, self.value, self.names)

    def in_a_file(self, value: Schema, *names: str) -> Spelling:
        """Return the key that names a file with the value."""
        return Spelling((*self.words, "file"), (*self.joints, ANY), value, names)

    def heads(self) -> Iterator[_Head]:
        """Yield what may be a key: all words, or the first words if the others are in a table."""
        for length, joint in enumerate((*self.joints, ""), 1):
            if joint != WITHIN:
                yield _Head(self, length, joint)


@dataclass(frozen=True, slots=True)
class _Head:
    """The first words of a spelling, and what follows them."""

    spelling: Spelling
    length: int
    # What is between these words and the rest. Empty: there is no rest.
    joint: str

    @property
    def name(self) -> str:
        return "_".join(self.spelling.words[: self.length])

    @property
    def offered(self) -> tuple[str, ...]:
        """The spellings that an editor offers."""
        if self.joint == TABLE:
            return (self.name,)
        if self.joint or TABLE in self.spelling.joints:
            return ()
        return self.spelling.names

    @property
    def rest(self) -> Spelling:
        """The key in the table that the head names."""
        return Spelling(
            words=self.spelling.words[self.length :],
            joints=self.spelling.joints[self.length :],
            value=self.spelling.value,
            names=self.spelling.names if self.joint == TABLE else (),
        )

    def all_spellings(self) -> Iterator[str]:
        """Yield the words with each separator that may be between them."""
        choices = [_WRITTEN[joint] for joint in self.spelling.joints[: self.length - 1]]
        for separators in itertools.product(*choices):
            yield self._joined(separators)

    @property
    def pattern(self) -> str:
        """All spellings, as a regular expression."""
        return self._joined([_MATCHED[joint] for joint in self.spelling.joints[: self.length - 1]])

    def _joined(self, separators: Sequence[str]) -> str:
        pairs = zip(self.spelling.words, (*separators, ""), strict=False)
        return "".join(word + separator for word, separator in pairs)


@dataclass(slots=True)
class _Key:
    """What the keys that match one pattern mean: values, or tables with the rest of longer keys."""

    name: str
    spellings: frozenset[str]
    values: list[Schema] = field(default_factory=list)
    rests: list[Spelling] = field(default_factory=list)
    # It may be a table of ours, which may be empty.
    is_ours: bool = False

    def add(self, head: _Head) -> None:
        if not head.joint:
            self.values.append(head.spelling.value)
            return
        self.rests.append(head.rest)
        self.is_ours |= head.joint == TABLE


@dataclass(slots=True)
class Definitions:
    """The ``$defs`` of a schema. Equal schemas are kept once."""

    schemas: dict[str, Schema] = field(default_factory=dict)
    # Content of a schema -> its name.
    _names: dict[str, str] = field(default_factory=dict)

    def ref(self, name: str, schema: Schema) -> Schema:
        """Return a reference to *schema*, which is kept under *name* unless it is known already."""
        content = json.dumps(schema)
        if content not in self._names:
            names = itertools.chain((name,), (f"{name}-{number}" for number in itertools.count(2)))
            self._names[content] = next(free for free in names if free not in self.schemas)
            self.schemas[self._names[content]] = schema
        return {"$ref": f"#/$defs/{self._names[content]}"}

    def table(
        self,
        name: str,
        spellings: Iterable[Spelling],
        more_patterns: Mapping[str, Schema] | None = None,
        *,
        may_be_empty: bool = True,
    ) -> dict[str, Any]:
        """Return the schema of a table with these keys, and with *more_patterns* of keys."""
        by_pattern: dict[str, _Key] = {}
        listed: dict[str, None] = {}
        for spelling in spellings:
            for head in spelling.heads():
                if head.pattern not in by_pattern:
                    by_pattern[head.pattern] = _Key(head.name, frozenset(head.all_spellings()))
                by_pattern[head.pattern].add(head)
                listed |= dict.fromkeys(head.offered)
        by_spelling: dict[str, list[_Key]] = {}
        for key in by_pattern.values():
            for written in key.spellings:
                by_spelling.setdefault(written, []).append(key)
        # A spelling that two patterns match must fit one of them, and patternProperties would ask
        # for both. So it is listed: retry.backoff, which may also be the table of retry.backoff.ms.
        listed |= dict.fromkeys(
            sorted(written for written, keys in by_spelling.items() if len(keys) > 1)
        )
        schema: dict[str, Any] = {"type": ["object", "null"] if may_be_empty else "object"}
        if not may_be_empty:
            schema["minProperties"] = 1
        schema["properties"] = {
            written: self._meaning(name, by_spelling[written]) for written in listed
        }
        patterns = {
            _pattern_without(pattern, key.spellings & listed.keys()): self._meaning(name, [key])
            for pattern, key in by_pattern.items()
            if key.spellings - listed.keys()
        }
        schema["patternProperties"] = patterns | dict(more_patterns or {})
        schema["additionalProperties"] = False
        return schema

    def _meaning(self, table: str, keys: list[_Key]) -> Schema:
        """Return the schema of what one spelling may mean: any of these keys."""
        found = [value for key in keys for value in key.values]
        rests = [rest for key in keys for rest in key.rests]
        if rests:
            name = f"{table}.{keys[0].name}"
            may_be_empty = any(key.is_ours for key in keys)
            found.append(self.ref(name, self.table(name, rests, may_be_empty=may_be_empty)))
        return found[0] if len(found) == 1 else either(*found)


def _pattern_without(pattern: str, listed: Iterable[str]) -> str:
    """Return a pattern of whole keys that does not match the *listed* spellings."""
    exceptions = "".join(f"(?!{re.escape(name)}$)" for name in sorted(listed))
    return f"^{exceptions}{pattern}$"
