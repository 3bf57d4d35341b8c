"""Documents of JSON Schema: which draft one is of, which schemas are in it, and which others it
refers to.

The library `referencing` resolves references; what is here decides which documents it knows, and
under which URIs.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from reactive_kafka.errors import MissingExtraError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.registered.schema_questions import Reference, Schema

Lookup = Callable[[Any, str], Any]
"""A resolver, and a reference as it is written -> what it leads to, as the resolver has it; None:
nowhere.
"""
_MOST_SHOWN = 200
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def draft_of(document: Any) -> Any:
    """jsonschema's class for the draft that a document is of.

    A document without `$schema`, or with one that is no draft's, is of 2020-12, in which pydantic
    writes. It is of draft 7, which Confluent supposes, if it is invalid in 2020-12 for nothing but
    what was allowed before: an array in `items`, a fragment in `$id`.

    Raises:
        jsonschema.SchemaError: It is no valid schema.
    """
    from jsonschema import validators
    from jsonschema.exceptions import SchemaError

    named = document.get("$schema") if isinstance(document, Mapping) else None
    if isinstance(named, str):
        # the old drafts are named by http, and many write https
        uri = named.replace("https://json-schema.org/draft-0", "http://json-schema.org/draft-0")
        own = validators.validator_for({"$schema": uri}, default=None)
        if own is not None:
            # without formats: a pattern that Python cannot compile does not make a schema invalid
            own.check_schema(document, format_checker=None)
            return own
    newest = validators.Draft202012Validator
    problems = list(newest(newest.META_SCHEMA).iter_errors(document))
    if not problems:
        return newest
    if any([*problem.absolute_path][-1:] not in (["items"], ["$id"]) for problem in problems):
        raise SchemaError.create_from(problems[0])
    validators.Draft7Validator.check_schema(document, format_checker=None)
    return validators.Draft7Validator


def why_not(error: Exception) -> str:
    """Why a text is no schema, of what a library raised: with the place and the words of an invalid
    schema.
    """
    from jsonschema.exceptions import SchemaError

    if not isinstance(error, SchemaError):
        return type(error).__name__
    return (
        f"{'/'.join(map(str, error.absolute_path)) or 'the schema'}: {error.message[:_MOST_SHOWN]}"
    )


def specification_of(draft: Any) -> Any:
    """The rules of a draft for the library referencing: where subschemas and identifiers stand."""
    from referencing.jsonschema import specification_with

    return specification_with(draft.ID_OF(draft.META_SCHEMA))


class Documents:
    """A document and all that it refers to, by every URI that may lead there.

    The name of a reference is relative to the document that has it. Other clients resolve it
    against the root document, or take it as it is: what they find is found here too. A document
    without `$schema` is read in the draft of the one that refers to it: the specification leaves
    that open, and Confluent's validators do the same.
    """

    def __init__(self, schema: Schema, document: Any, specification: Any) -> None:
        from referencing import Registry, Resource

        root: Resource[Any] = specification.create_resource(document)
        base = root.id() or ""
        self.base = base
        self._document = document
        self._specification = specification
        self._by_uri: dict[str, Resource[Any]] = {base: root}
        others: dict[str, Any] = {}
        pending = [(schema, base, base, specification)]
        while pending:
            referring, at, own_id, outer = pending.pop()
            for reference in referring.references:
                uri = urljoin(own_id, reference.name)
                if uri in self._by_uri:
                    continue
                contents = json.loads(reference.schema.text)
                inner = outer.detect(contents)
                found = inner.create_resource(contents)
                self._by_uri[uri] = found
                # the library resolves against where a document was found, whatever its identifier
                # is
                for other in (
                    urljoin(at, reference.name),
                    urljoin(base, reference.name),
                    reference.name,
                ):
                    others.setdefault(other, found)
                pending.append((reference.schema, uri, urljoin(uri, found.id() or ""), inner))
        registry: Registry[Any] = Registry().with_resources((others | self._by_uri).items())
        # at once: otherwise each look for an identifier inside of a document would go through all
        # of it
        self.registry = registry.crawl()

    def subschemas(self, lookup: Lookup) -> Iterator[dict[str, Any]]:
        """Every schema that is inside of the document, or is referred to, once; data in `enum` is
        none.
        """
        seen: set[int] = set()
        pending = [(self._document, self._specification, self.registry.resolver(self.base))]
        while pending:
            schema, rules, resolver = pending.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            yield schema
            for inside in rules.subresources_of(schema):
                inner = rules.detect(inside)
                pending.append(
                    (inside, inner, resolver.in_subresource(inner.create_resource(inside)))
                )
            for reference in references_in(schema):
                found = lookup(resolver, reference)
                if found is not None:
                    pending.append((found.contents, rules.detect(found.contents), found.resolver))

    def path_of(self, schema: dict[str, Any]) -> list[str]:
        """Where a subschema is: names and indexes, behind the URI of its document unless that is
        the root.
        """
        for uri, resource in self._by_uri.items():
            path = _path_to(resource.contents, schema)
            if path is not None:
                return [*path] if uri == self.base else [f"{uri}#", *path]
        return []


def references_in(schema: Mapping[str, Any]) -> Iterator[str]:
    """What a subschema refers to, as it is written there."""
    for keyword in REFERENCES:
        reference = schema.get(keyword)
        if isinstance(reference, str):
            yield reference


def found_by(resolver: Any, reference: str) -> Any:
    """What a reference leads to; None: nowhere."""
    from referencing.exceptions import Unresolvable

    try:
        return resolver.lookup(reference)
    except (Unresolvable, ValueError, TypeError, AttributeError):
        # A pointer into a number, or a text.
        return None


def is_metaschema(reference: str) -> bool:
    """Whether a reference leads to the schema of a draft, which jsonschema has."""
    from jsonschema_specifications import REGISTRY

    return found_by(REGISTRY.resolver(), reference) is not None


def _path_to(document: Any, schema: dict[str, Any]) -> tuple[str, ...] | None:
    pending: list[tuple[Any, tuple[str, ...]]] = [(document, ())]
    while pending:
        value, path = pending.pop()
        if value is schema:
            return path
        if isinstance(value, dict):
            pending += [(inside, (*path, name)) for name, inside in value.items()]
        elif isinstance(value, list):
            pending += [(inside, (*path, str(index))) for index, inside in enumerate(value)]
    return None


def loaded(file: str) -> Schema:
    """The schema of a file, with the neighbouring files that it refers to, directly or through
    others.

    Raises:
        FormatError: A file cannot be read, or they refer to each other in a circle.
        MissingExtraError: There is no jsonschema.
    """
    jsonschema_or_why()
    path = Path(os.path.normpath(file))
    return _with_references(path, path.parent, ())


def _with_references(path: Path, top: Path, inside: tuple[Path, ...]) -> Schema:
    """The schema of one file. Subjects are called as their files are, seen from *top*: two may have
    the same name.
    """
    if path in inside:
        raise FormatError(f"{path} refers to itself, by way of {len(inside)} files")
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
        names = _outside_of(document)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"{path} is no JSON: {error}") from error
    # The library raises many kinds of errors for a document that is not a schema.
    except Exception as error:
        raise FormatError(f"{path} is no JSON Schema that can be used: {why_not(error)}") from error
    references = []
    for name, place in sorted(names.items()):
        other = Path(os.path.normpath(path.parent / place))
        if urlsplit(name).scheme and not other.exists():
            # The reference leads nowhere. Compiling the schema raises for it.
            continue
        subject = name if urlsplit(name).scheme else Path(os.path.relpath(other, top)).as_posix()
        references.append(
            Reference(name, subject, 0, _with_references(other, top, (*inside, path)))
        )
    return Schema("JSON", text, tuple(references))


def _outside_of(document: Any) -> dict[str, str]:
    """What a document refers to outside of itself: the name that is written there -> the path of
    its file.

    Paths are relative to the document, whose own identifier may say where that is: below the
    identifier `https://example.com/schemas/order.json`, `line.json` is a file beside it, and so is
    `https://example.com/schemas/line.json`. What is on another host has no file.
    """
    from referencing import Registry
    from referencing.exceptions import NoSuchResource

    draft = draft_of(document)
    documents = Documents(Schema("JSON", ""), document, specification_of(draft))
    asked: list[str] = []

    def note(uri: str) -> Any:
        asked.append(uri)
        raise NoSuchResource(uri)

    retrieving: Any = Registry
    documents.registry = retrieving(retrieve=note).combine(documents.registry)
    found: dict[str, str] = {}

    def lookup(resolver: Any, reference: str) -> Any:
        asked.clear()
        target = found_by(resolver, reference)
        if asked and not is_metaschema(asked[0]):
            place = _place(asked[0], documents.base)
            if place is not None:
                found[reference.partition("#")[0]] = place
        return target

    for _ in documents.subschemas(lookup):
        pass
    return found


def _place(uri: str, base: str) -> str | None:
    """Where the file of a document is, seen from the one that has the identifier *base*; None:
    elsewhere.
    """
    to = urlsplit(uri)
    here = urlsplit(base)
    if not to.scheme and not to.netloc and (here.scheme or not here.path):
        # nothing to be relative to: no identifier, or one such as `urn:example:order`
        return unquote(to.path)
    if (to.scheme, to.netloc) != (here.scheme, here.netloc) or not to.path:
        return None
    return unquote(posixpath.relpath(to.path, posixpath.dirname(here.path) or "."))


def jsonschema_or_why() -> Any:
    """The library.

    MissingExtraError: it is not installed.
    """
    try:
        import jsonschema
        import jsonschema.validators
    except ImportError as error:
        raise MissingExtraError("the format 'json-schema'", "json-schema") from error
    return jsonschema
