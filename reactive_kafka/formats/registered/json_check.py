"""Documents are checked with JSON Schemas that are compiled once; reasons quote no value of the
data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from reactive_kafka.formats.registered.ecma_patterns import ALWAYS, NEVER, PatternError, translated
from reactive_kafka.formats.registered.json_documents import (
    REFERENCES,
    Documents,
    draft_of,
    found_by,
    is_metaschema,
    specification_of,
)
from reactive_kafka.formats.registered.schema_questions import Schema

Check = Callable[[Any], str | None]
"""Why a document does not fit, which is never empty; None: it fits."""

_NOTHING: dict[str, Any] = {"not": {}}
"""Stands for a subschema that is `false`: jsonschema would not say where that is."""
_MOST_SHOWN = 100


class _NowhereError(Exception):
    """A reference that cannot be followed, as it is written."""


class _Followed(str):
    """A step in the path of an error that is a reference, not a keyword."""


class Unchecked(NamedTuple):
    """A pattern that cannot be checked: what it says, where it is in its schema, and why."""

    pattern: str
    path: str
    why: str


class Compiled:
    """A schema that documents are checked with.

    A pattern that Python cannot express refuses nothing: an error counts only if it is there both
    ways, where such patterns match everything (and ask nothing of the properties that they name),
    and where they match nothing.

    Raises:
        Exception: Whatever a library makes of text that is no schema.
    """

    def __init__(self, schema: Schema) -> None:
        first = _Variant(schema, ALWAYS)
        self.unchecked = first.unchecked
        # references that lead nowhere: a document that does not come by them may fit all the same
        self.nowhere = first.nowhere
        self._first = first
        self._second = _Variant(schema, NEVER) if first.unchecked else None

    def check(self, value: Any) -> str | None:
        """Why a document does not fit; None: it does."""
        try:
            if self._second is None:
                wrong = next(self._first.validator.iter_errors(value), None)
                return None if wrong is None else self._first.reason(wrong)
            one_way = {
                self._first.place(error): error
                for error in self._first.validator.iter_errors(value)
            }
            if not one_way:
                return None
            for error in self._second.validator.iter_errors(value):
                both_ways = one_way.get(self._second.place(error))
                if both_ways is not None:
                    return self._first.reason(both_ways)
        except RecursionError:
            return "the references of the schema lead in a circle, or the document is nested too deeply"
        except _NowhereError as error:
            return f"the reference {error.args[0]!r} cannot be followed"
        except Exception as error:
            reference = getattr(error, "ref", None)
            if reference is not None:
                return f"the reference {reference!r} cannot be followed"
            return f"{type(error).__name__} while it is checked"
        return None


class _Variant:
    """A schema in Python's patterns, where those that cannot be expressed are *unknown*."""

    def __init__(self, schema: Schema, unknown: str) -> None:
        from jsonschema import validators

        document = json.loads(schema.text)
        draft = draft_of(document)
        documents = Documents(schema, document, specification_of(draft))
        self.unchecked: list[Unchecked] = []
        self.nowhere: list[str] = []
        self._unknown = unknown
        # what patterns became that cannot be expressed
        self._stand_ins: set[str] = set()
        # what a pattern became -> what it was
        self._written: dict[str, str] = {}
        # the whole walk comes first: references are looked up in documents as they are written
        schemas = list(documents.subschemas(self._lookup))
        for found in schemas:
            self._prepare(found, documents)
        for found in schemas:
            self._follow_patterns(found)
            if "$schema" in found and validators.validator_for(found, default=None) is draft:
                # it would take jsonschema's own class for this draft instead of the extended one
                del found["$schema"]
        extended = validators.extend(draft, {"$ref": _following(draft.VALIDATORS["$ref"])})
        self.validator = extended(document, registry=documents.registry)

    def reason(self, error: Any) -> str:
        """What refuses what, without a value of the data: only names that the schema has are shown
        of it.
        """
        steps = list(error.absolute_schema_path)
        references = [str(step) for step in steps if isinstance(step, _Followed)]
        schema_path = self._written_as([step for step in steps if not isinstance(step, _Followed)])
        shown = set(schema_path)
        data_path = [
            str(one) if isinstance(one, int) or str(one) in shown else "*"
            for one in error.absolute_path
        ]
        place = f"the data at {'/'.join(data_path)}" if data_path else "the data"
        if references:
            place += f", by way of $ref {', '.join(map(repr, references))}"
        if error.validator is None or error.schema is _NOTHING:
            schema_path = schema_path[:-1] if error.schema is _NOTHING else schema_path
            return f"{'/'.join([*schema_path, 'false'])}: nothing is allowed for {place}"
        keyword = self._shown(error.validator, error.validator_value)
        return f"{'/'.join(schema_path)}: {keyword} refuses {place}"

    def place(self, error: Any) -> tuple[Any, ...]:
        """What tells an error from others, in both variants."""
        return (tuple(error.absolute_path), tuple(self._written_as(error.absolute_schema_path)))

    def _written_as(self, steps: Iterable[Any]) -> list[str]:
        """Steps in a schema, with patterns as they were written there."""
        return [self._written.get(str(step), str(step)) for step in steps]

    def _shown(self, keyword: str, value: Any) -> str:
        """A keyword with what the schema says there, if that is short and holds no schemas."""
        if keyword == "pattern":
            return f"pattern '{self._written.get(value, value)}'"
        is_plain = not isinstance(value, dict) and not (
            isinstance(value, list) and any(isinstance(one, dict) for one in value)
        )
        text = json.dumps(value, ensure_ascii=False) if is_plain else ""
        return f"{keyword} {text}" if 0 < len(text) <= _MOST_SHOWN else keyword

    def _lookup(self, resolver: Any, reference: str) -> Any:
        found = found_by(resolver, reference)
        if found is None and not is_metaschema(reference):
            self.nowhere.append(reference)
        return found

    def _prepare(self, schema: dict[str, Any], documents: Documents) -> None:
        """Put Python's patterns into a schema, and what stands for `false` where an error would not
        say where.
        """
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            schema["pattern"] = self._translated(pattern, schema, documents, "pattern")
        by_pattern = schema.get("patternProperties")
        if isinstance(by_pattern, dict):
            renamed: dict[str, Any] = {}
            for one, inside in by_pattern.items():
                name = self._translated(one, schema, documents, "patternProperties")
                while name in renamed:
                    # two may mean the same
                    name += ALWAYS
                    self._written[name] = one
                is_lenient = self._unknown == ALWAYS and name in self._stand_ins
                renamed[name] = {} if is_lenient else inside
            schema["patternProperties"] = renamed
        for keyword in ("then", "else"):
            if schema.get(keyword) is False:
                schema[keyword] = _NOTHING
        for keyword in ("properties", "patternProperties"):
            named = schema.get(keyword)
            if isinstance(named, dict):
                schema[keyword] = {
                    name: _NOTHING if inside is False else inside for name, inside in named.items()
                }

    def _follow_patterns(self, schema: dict[str, Any]) -> None:
        """Change references by way of a pattern, which has become another."""
        for keyword in REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str) and "/patternProperties/" in reference:
                became = {pattern: found for found, pattern in self._written.items()}
                steps = reference.split("/")
                for index in range(1, len(steps)):
                    if steps[index - 1] == "patternProperties":
                        pattern = unquote(steps[index]).replace("~1", "/").replace("~0", "~")
                        found = became.get(pattern, pattern)
                        steps[index] = quote(found.replace("~", "~0").replace("/", "~1"), safe="")
                schema[keyword] = "/".join(steps)

    def _translated(
        self, pattern: str, schema: dict[str, Any], documents: Documents, keyword: str
    ) -> str:
        try:
            found = translated(pattern)
        except PatternError as error:
            found = f"{self._unknown}(?#{len(self.unchecked)})"
            self._stand_ins.add(found)
            path = self._written_as(documents.path_of(schema))
            self.unchecked.append(Unchecked(pattern, "/".join([*path, keyword]), str(error)))
        self._written[found] = pattern
        return found


def _following(keyword: Any) -> Any:
    """The keyword `$ref` as jsonschema has it, with errors that name the reference which led to
    them.
    """
    from referencing.exceptions import Unresolvable

    def follow(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[Any]:
        try:
            for error in keyword(validator, reference, instance, schema):
                error.schema_path.appendleft(_Followed(reference))
                yield error
        except Unresolvable as error:
            raise _NowhereError(reference) from error

    return follow
