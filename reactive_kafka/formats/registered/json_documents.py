"""JSON Schema documents: their draft, the schemas in them, and the documents they refer to.

The library ``referencing`` resolves references. This module decides which documents it knows, and
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
"""A resolver and a reference as it is written -> the resolved reference; None: it leads nowhere."""
_MOST_SHOWN = 200
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def draft_of(document: Any) -> Any:
    """Return jsonschema's class for the draft of a document.

    A document without ``$schema``, or with one that names no draft, is of 2020-12, which pydantic
    writes. If only two things make it invalid there, which were allowed before (an array in
    ``items``, a fragment in ``$id``), it is of draft 7, which is Confluent's default.

    Raises:
        jsonschema.SchemaError: It is not a valid schema.
    """
    from jsonschema import validators
    from jsonschema.exceptions import SchemaError

    named = document.get("$schema") if isinstance(document, Mapping) else None
    if isinstance(named, str):
        # The names of the old drafts begin with http, and many authors write https.
        uri = named.replace("https://json-schema.org/draft-0", "http://json-schema.org/draft-0")
        own = validators.validator_for({"$schema": uri}, default=None)
        if own is not None:
            # Formats are not checked: a pattern is valid even if Python cannot compile it.
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


def invalid_reason(error: Exception) -> str:
    """Return why a document is not a schema, from the error that a library raised."""
    from jsonschema.exceptions import SchemaError

    if not isinstance(error, SchemaError):
        return type(error).__name__
    place = "/".join(map(str, error.absolute_path)) or "the schema"
    return f"{place}: {error.message[:_MOST_SHOWN]}"


def specification_of(draft: Any) -> Any:
    """Return referencing's rules for a draft: where it has subschemas and identifiers."""
    from referencing.jsonschema import specification_with

    return specification_with(draft.ID_OF(draft.META_SCHEMA))


class Documents:
    """A document and all documents that it refers to, by every URI that may lead there.

    The name of a reference is relative to the document that has it. Other clients resolve it
    against the root document, or use it unchanged; these URIs lead there, too. A document without
    ``$schema`` is read in the draft of the document that refers to it. The specification leaves
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
                # The library resolves against the URI where a document was found, and ignores the
                # document's own identifier.
                for other in (
                    urljoin(at, reference.name),
                    urljoin(base, reference.name),
                    reference.name,
                ):
                    others.setdefault(other, found)
                pending.append((reference.schema, uri, urljoin(uri, found.id() or ""), inner))
        registry: Registry[Any] = Registry().with_resources((others | self._by_uri).items())
        # Crawled now. Otherwise each search for an identifier inside of a document would go through
        # all of the document.
        self.registry = registry.crawl()

    def subschemas(self, lookup: Lookup) -> Iterator[dict[str, Any]]:
        """Yield every schema in the document, or referred to by it, once. Data in enums is none."""
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
        """Return the path of a subschema, after the URI of its document if that is not the root."""
        for uri, resource in self._by_uri.items():
            path = _path_to(resource.contents, schema)
            if path is not None:
                return [*path] if uri == self.base else [f"{uri}#", *path]
        return []


def references_in(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references of a subschema, as they are written."""
    for keyword in REFERENCES:
        reference = schema.get(keyword)
        if isinstance(reference, str):
            yield reference


def found_by(resolver: Any, reference: str) -> Any:
    """Return what a reference leads to; None: nowhere."""
    from referencing.exceptions import Unresolvable

    try:
        return resolver.lookup(reference)
    except (Unresolvable, ValueError, TypeError, AttributeError):
        # The pointer leads into a number or a text.
        return None


def is_metaschema(reference: str) -> bool:
    """Return whether a reference leads to the schema of a draft, which jsonschema has."""
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
    """Return the schema of a file, with all files that it refers to, directly or through others.

    Raises:
        FormatError: A file cannot be read, or they refer to each other in a circle.
        MissingExtraError: There is no jsonschema.
    """
    jsonschema_or_why()
    path = Path(os.path.normpath(file))
    return _with_references(path, path.parent, (), {})


def _with_references(
    path: Path, top: Path, inside: tuple[Path, ...], made: dict[Path, Schema]
) -> Schema:
    """Return the schema of one file, with the files that it refers to.

    Args:
        path: The file.
        top: The folder of the first file. The subject of a file is its path from there, because
            files in different folders may have the same name.
        inside: The files that lead to this one.
        made: The schemas of the files that were read. Several files may refer to the same one.
    """
    if path in made:
        return made[path]
    if path in inside:
        raise FormatError(f"{path} refers to itself, by way of {len(inside)} files")
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
        names = _files_referred_to(document)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"{path} is no JSON: {error}") from error
    except Exception as error:
        # Jsonschema raises anything on a document that is not a schema.
        raise FormatError(
            f"{path} is no JSON Schema that can be used: {invalid_reason(error)}"
        ) from error
    references = []
    for name, place in sorted(names.items()):
        other = Path(os.path.normpath(path.parent / place))
        if urlsplit(name).scheme and not other.exists():
            # The reference leads nowhere, which is reported when the schema is compiled.
            continue
        subject = name if urlsplit(name).scheme else Path(os.path.relpath(other, top)).as_posix()
        schema = _with_references(other, top, (*inside, path), made)
        references.append(Reference(name, subject, 0, schema))
    made[path] = Schema("JSON", text, tuple(references))
    return made[path]


def _files_referred_to(document: Any) -> dict[str, str]:
    """Return the name of a document that this one refers to, as written -> the path of its file.

    Paths are relative to the document, whose identifier may say where it is. If that is
    ``https://example.com/schemas/order.json``, then ``line.json`` is a file in the same folder, and
    so is ``https://example.com/schemas/line.json``. A document on another host has no file.
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
    """Return the path of a document's file, relative to the document with the identifier *base*.

    Returns:
        None if the document is on another host.
    """
    to = urlsplit(uri)
    here = urlsplit(base)
    if not to.scheme and not to.netloc and (here.scheme or not here.path):
        # The URI is relative to nothing: there is no identifier, or one like `urn:example:order`.
        return unquote(to.path)
    if (to.scheme, to.netloc) != (here.scheme, here.netloc) or not to.path:
        return None
    return unquote(posixpath.relpath(to.path, posixpath.dirname(here.path) or "."))


def jsonschema_or_why() -> Any:
    """Return the library.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import jsonschema
        import jsonschema.validators
    except ImportError as error:
        raise MissingExtraError("the format 'json-schema'", "json-schema") from error
    return jsonschema
