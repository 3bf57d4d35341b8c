"""The official JSON Schema Test Suite: every required test, as records of a channel with the format
`json-schema`.

What the suite calls valid is read, and what it calls invalid is refused. Its remote documents are
references of the schema, as in a registry. The format checks with python-jsonschema: what that
library gets wrong is listed by name.
"""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import validators
from referencing import Registry, Resource
from referencing.jsonschema import specification_with

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import ChannelSchemas, Decoder, SchemaSource, decoder_for
from reactive_kafka.formats.registered.schema_questions import ById, Reference, Schema

SUITE = Path(__file__).parent.parent / "specs" / "json-schema-test-suite.tar.xz"
REMOTES = "http://localhost:1234/"
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
TESTS = 4942
"""So many the suite has: fewer would mean that some are not found."""


class Case(NamedTuple):
    """One test of the suite, with names as the suite has them."""

    group: str
    test: str


WRONG_IN_JSONSCHEMA = {
    ("draft2019-09", "unevaluatedProperties"): {
        Case(
            "unevaluatedProperties with adjacent non-bool additionalProperties",
            "with additional properties",
        ),
    },
    ("draft2019-09", "vocabulary"): {
        Case(
            "schema that uses custom metaschema with with no validation vocabulary",
            "no validation: invalid number, but it still validates",
        ),
    },
    ("draft2020-12", "vocabulary"): {
        Case(
            "schema that uses custom metaschema with with no validation vocabulary",
            "no validation: invalid number, but it still validates",
        ),
    },
}
"""The tests that python-jsonschema fails, and we with it: draft and file -> tests."""


@cache
def suite() -> dict[str, str]:
    """Path -> text of every file of the suite."""
    found: dict[str, str] = {}
    with tarfile.open(SUITE) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                found[member.name] = content.read().decode()
    return found


def files() -> list[tuple[str, str]]:
    """Draft and name of every file of tests."""
    paths = [Path(path) for path in suite() if path.startswith("tests/")]
    return sorted((path.parent.name, path.stem) for path in paths)


def groups(draft: str, name: str) -> list[dict[str, Any]]:
    """A schema with its tests, each. A schema that does not name its draft is given the one of its
    folder.
    """
    found: list[dict[str, Any]] = json.loads(suite()[f"tests/{draft}/{name}.json"])
    for group in found:
        if isinstance(group["schema"], dict):
            group["schema"] = {"$schema": DRAFTS[draft], **group["schema"]}
    return found


def remotes(draft: str) -> dict[str, str]:
    """URI -> text of the documents that tests of a draft refer to."""
    found: dict[str, str] = {}
    for path, text in suite().items():
        folder, _, name = path.partition("/")
        if folder == "remotes" and name.split("/")[0] not in DRAFTS.keys() - {draft}:
            found[REMOTES + name] = text
    return found


def ours(draft: str, schema: Any) -> Decoder:
    """The decoder of a channel whose records are written with this schema."""
    text = json.dumps(schema)
    references: list[Reference] = []
    if REMOTES in text:
        references = [
            Reference(uri, uri, 1, Schema("JSON", other)) for uri, other in remotes(draft).items()
        ]
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), Schema("JSON", text, tuple(references)))
    decode = decoder_for(Any, "json-schema", SchemaSource(schemas, "orders"))
    assert decode is not None
    return decode


def is_read(decode: Decoder, data: Any) -> bool:
    """Whether data is read, and as what it is; a DecodeError of another reason than the data is no
    refusal.
    """
    try:
        payload = decode(b"\0\0\0\0\1" + json.dumps(data).encode())
    except DecodeError as error:
        assert "does not fit the JSON Schema, schema 1: " in str(error)
        return False
    assert payload == data
    return True


def fits_in_jsonschema(draft: str, schema: Any, data: Any) -> bool:
    """What python-jsonschema says alone, without any code of ours."""
    library = validators.validator_for({"$schema": DRAFTS[draft]})
    specification = specification_with(DRAFTS[draft].rstrip("#"))
    documents = [
        (uri, Resource.from_contents(json.loads(text), specification))
        for uri, text in remotes(draft).items()
    ]
    retrieving: Any = Registry().with_resources(documents)
    checked: bool = library(schema, registry=retrieving).is_valid(data)
    return checked


@pytest.mark.parametrize(("draft", "name"), files())
def test_what_the_suite_calls_valid_is_read_and_what_it_calls_invalid_is_refused(
    draft: str, name: str
) -> None:
    wrong: set[Case] = set()
    for group in groups(draft, name):
        decode = ours(draft, group["schema"])
        for test in group["tests"]:
            if is_read(decode, test["data"]) is not test["valid"]:
                wrong.add(Case(group["description"], test["description"]))
    assert wrong == WRONG_IN_JSONSCHEMA.get((draft, name), set())


@pytest.mark.parametrize(("draft", "name"), WRONG_IN_JSONSCHEMA)
def test_what_is_listed_as_wrong_in_jsonschema_is_wrong_there(draft: str, name: str) -> None:
    wrong: set[Case] = set()
    for group in groups(draft, name):
        for test in group["tests"]:
            if fits_in_jsonschema(draft, group["schema"], test["data"]) is not test["valid"]:
                wrong.add(Case(group["description"], test["description"]))
    assert wrong == WRONG_IN_JSONSCHEMA[draft, name]


def test_the_suite_is_complete() -> None:
    assert {draft for draft, _ in files()} == DRAFTS.keys()
    assert (
        sum(len(group["tests"]) for draft, name in files() for group in groups(draft, name))
        == TESTS
    )
