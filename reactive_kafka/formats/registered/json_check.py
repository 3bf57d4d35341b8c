"""Checks documents against a compiled JSON Schema. The reasons it returns quote no data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
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
"""Document -> why it does not fit, never an empty text; None: it fits."""

_NOTHING: dict[str, Any] = {"not": {}}
"""Replaces a subschema that is ``false``, because jsonschema would not say where that is."""
_MOST_SHOWN = 100


class _NowhereError(Exception):
    """A reference cannot be followed. The argument is the reference as it is written."""


class _Followed(str):
    """A step in the path of an error that is a reference, not a keyword."""


class Unchecked(NamedTuple):
    """A pattern that cannot be checked.

    Attributes:
        path: Where it is in its schema.
    """

    pattern: str
    path: str
    why: str


class CompiledJsonSchema:
    """A schema to check documents with.

    Python cannot express every pattern of JSON Schema. Such a pattern must not refuse a document.
    So the schema is compiled twice: once such patterns match everything (and allow everything for
    the properties that they name), and once they match nothing. An error counts only if both
    variants have it.

    Attributes:
        unchecked: The patterns that cannot be expressed.
        nowhere: References that lead nowhere. A document that does not need them may still fit.

    Raises:
        Exception: Jsonschema raises anything on text that is not a schema.
    """

    def __init__(self, schema: Schema) -> None:
        self._matching = _Variant(schema, ALWAYS)
        self.unchecked = self._matching.unchecked
        self.nowhere = self._matching.nowhere
        # Without such patterns both variants are the same.
        self._not_matching = _Variant(schema, NEVER) if self.unchecked else None

    def check(self, value: Any) -> str | None:
        """Return why a document does not fit; None: it does."""
        try:
            refusal = self._first_error(value)
            return None if refusal is None else self._matching.reason(refusal)
        except RecursionError:
            return (
                "the references of the schema lead in a circle, or the document is nested too "
                "deeply"
            )
        except _NowhereError as error:
            return f"the reference {error.args[0]!r} cannot be followed"
        except Exception as error:
            reference = getattr(error, "ref", None)
            if reference is not None:
                return f"the reference {reference!r} cannot be followed"
            return f"{type(error).__name__} while it is checked"

    def _first_error(self, value: Any) -> Any:
        """Return the first error that both variants have; None: there is none."""
        if self._not_matching is None:
            return next(self._matching.validator.iter_errors(value), None)
        errors = {
            self._matching.place(error): error
            for error in self._matching.validator.iter_errors(value)
        }
        if not errors:
            return None
        for error in self._not_matching.validator.iter_errors(value):
            in_both = errors.get(self._not_matching.place(error))
            if in_both is not None:
                return in_both
        return None


class _Variant:
    """A schema whose patterns were translated for Python.

    Args:
        schema: The schema.
        stand_in: Replaces patterns that Python cannot express.
    """

    def __init__(self, schema: Schema, stand_in: str) -> None:
        from jsonschema import validators

        document = json.loads(schema.text)
        draft = draft_of(document)
        documents = Documents(schema, document, specification_of(draft))
        self.unchecked: list[Unchecked] = []
        self.nowhere: list[str] = []
        self._stand_in = stand_in
        # The replacements of patterns that cannot be expressed.
        self._stand_ins: set[str] = set()
        # Translated pattern -> the pattern as it is written.
        self._written: dict[str, str] = {}
        # All subschemas are collected before any is changed, because references are looked up in
        # the documents as they are written.
        subschemas = list(documents.subschemas(self._lookup))
        for subschema in subschemas:
            self._prepare(subschema, documents)
        for subschema in subschemas:
            self._follow_patterns(subschema)
            named_draft = validators.validator_for(subschema, default=None)
            if "$schema" in subschema and named_draft is draft:
                # With this key jsonschema would use its own class instead of the extended one.
                del subschema["$schema"]
        own = {"$ref": _following(draft.VALIDATORS["$ref"]), "uniqueItems": _unique_items}
        # Draft 3 has another name for it.
        for keyword in ("multipleOf", "divisibleBy"):
            if keyword in draft.VALIDATORS:
                own[keyword] = _multiple_of
        extended = validators.extend(draft, own)
        self.validator = extended(document, registry=documents.registry)

    def reason(self, error: Any) -> str:
        """Return which keyword refuses which place in the data, without a value of the data.

        Of the names in the data, only those that the schema has are shown.
        """
        steps = list(error.absolute_schema_path)
        references = [str(step) for step in steps if isinstance(step, _Followed)]
        schema_path = self._written_as([step for step in steps if not isinstance(step, _Followed)])
        names = set(schema_path)
        data_path = [
            str(step) if isinstance(step, int) or str(step) in names else "*"
            for step in error.absolute_path
        ]
        place = f"the data at {'/'.join(data_path)}" if data_path else "the data"
        if references:
            place += f", by way of $ref {', '.join(map(repr, references))}"
        is_nothing = error.schema is _NOTHING
        if error.validator is None or is_nothing:
            if is_nothing:
                # The last step is the "not" of the replacement.
                schema_path = schema_path[:-1]
            return f"{'/'.join([*schema_path, 'false'])}: nothing is allowed for {place}"
        keyword = self._shown(error.validator, error.validator_value)
        return f"{'/'.join(schema_path)}: {keyword} refuses {place}"

    def place(self, error: Any) -> tuple[Any, ...]:
        """Return what identifies an error in both variants."""
        return (tuple(error.absolute_path), tuple(self._written_as(error.absolute_schema_path)))

    def _written_as(self, steps: Iterable[Any]) -> list[str]:
        """Return steps in a schema, with patterns as they are written there."""
        return [self._written.get(str(step), str(step)) for step in steps]

    def _shown(self, keyword: str, value: Any) -> str:
        """Return a keyword with its value, if that is short and contains no schemas."""
        if keyword == "pattern":
            return f"pattern '{self._written.get(value, value)}'"
        if isinstance(value, dict):
            return keyword
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            return keyword
        text = json.dumps(value, ensure_ascii=False)
        return f"{keyword} {text}" if len(text) <= _MOST_SHOWN else keyword

    def _lookup(self, resolver: Any, reference: str) -> Any:
        found = found_by(resolver, reference)
        if found is None and not is_metaschema(reference):
            self.nowhere.append(reference)
        return found

    def _prepare(self, schema: dict[str, Any], documents: Documents) -> None:
        """Replace the patterns of a subschema, and ``false`` where its place would not be named."""
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            schema["pattern"] = self._translated(pattern, schema, documents, "pattern")
        by_pattern = schema.get("patternProperties")
        if isinstance(by_pattern, dict):
            renamed: dict[str, Any] = {}
            for pattern, inside in by_pattern.items():
                name = self._translated(pattern, schema, documents, "patternProperties")
                while name in renamed:
                    # Two patterns may have the same translation, and both must stay.
                    name += ALWAYS
                    self._written[name] = pattern
                allows_all = self._stand_in == ALWAYS and name in self._stand_ins
                renamed[name] = {} if allows_all else inside
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
        """Change references that have a translated pattern in their path."""
        for keyword in REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str) and "/patternProperties/" in reference:
                translations = {pattern: new for new, pattern in self._written.items()}
                steps = reference.split("/")
                for index in range(1, len(steps)):
                    if steps[index - 1] == "patternProperties":
                        pattern = unquote(steps[index]).replace("~1", "/").replace("~0", "~")
                        new = translations.get(pattern, pattern)
                        steps[index] = quote(new.replace("~", "~0").replace("/", "~1"), safe="")
                schema[keyword] = "/".join(steps)

    def _translated(
        self, pattern: str, schema: dict[str, Any], documents: Documents, keyword: str
    ) -> str:
        """Return the pattern for Python, or else the stand-in, made unique by a number."""
        try:
            new = translated(pattern)
        except PatternError as error:
            new = f"{self._stand_in}(?#{len(self.unchecked)})"
            self._stand_ins.add(new)
            path = self._written_as(documents.path_of(schema))
            self.unchecked.append(Unchecked(pattern, "/".join([*path, keyword]), str(error)))
        self._written[new] = pattern
        return new


def _multiple_of(validator: Any, unit: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check ``multipleOf`` by the digits of the numbers, not by doubles.

    Jsonschema divides doubles, and 19.99 / 0.01 is not a whole number.
    """
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "number") and not _is_multiple(instance, unit):
        yield ValidationError("not a multiple")


def _is_multiple(number: Any, unit: Any) -> bool:
    if isinstance(number, int) and isinstance(unit, int):
        return number % unit == 0
    if isinstance(number, float) and not math.isfinite(number):
        return False
    return (_as_written(number) / _as_written(unit)).denominator == 1


def _as_written(number: Any) -> Fraction:
    # The text of a double has the digits that it was written with.
    return Fraction(number if isinstance(number, int) else str(number))


def _unique_items(validator: Any, is_unique: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check ``uniqueItems`` in one pass.

    Jsonschema compares each item with each other one, which holds up the event loop for seconds.
    """
    from jsonschema.exceptions import ValidationError

    if not is_unique or not validator.is_type(instance, "array"):
        return
    if len({_comparable(item) for item in instance}) < len(instance):
        yield ValidationError("not unique")


def _comparable(value: Any) -> Any:
    """Return what has a hash, and equals that of another value if JSON Schema calls both equal."""
    if isinstance(value, dict):
        return "object", frozenset((name, _comparable(item)) for name, item in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_comparable, value))
    # To Python True is 1.
    return ("boolean", value) if isinstance(value, bool) else value


def _following(keyword: Any) -> Any:
    """Return jsonschema's keyword ``$ref``, with errors that name the reference they came by."""
    from referencing.exceptions import Unresolvable

    def follow(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[Any]:
        try:
            for error in keyword(validator, reference, instance, schema):
                error.schema_path.appendleft(_Followed(reference))
                yield error
        except Unresolvable as error:
            raise _NowhereError(reference) from error

    return follow
