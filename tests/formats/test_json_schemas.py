"""JSON Schemas of every draft: what fits them, how they refer to each other, and why data is
refused.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import (
    ChannelSchemas,
    FormatError,
    SchemaSource,
    decoder_for,
    encoder_for,
)
from reactive_kafka.formats.registered.channel_schemas import SchemaMissing
from reactive_kafka.formats.registered.schema_questions import ById, IdOf, Reference, Schema

DRAFTS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019": "https://json-schema.org/draft/2019-09/schema",
    "2020": "https://json-schema.org/draft/2020-12/schema",
}
WITH_BOOLEANS = ["6", "7", "2019", "2020"]


def source(document: Any, *references: Reference) -> SchemaSource:
    """Schema 1 is this one."""
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), Schema("JSON", json.dumps(document), references))
    return SchemaSource(schemas, "orders")


def refusal(where: SchemaSource, value: Any) -> str:
    """Why a record cannot be decoded; empty: it can."""
    decode = decoder_for(Any, "json-schema", where)
    assert decode is not None
    try:
        decode(b"\0\0\0\0\1" + json.dumps(value).encode())
    except DecodeError as error:
        return str(error)
    return ""


def fits(where: SchemaSource, value: Any) -> bool:
    return not refusal(where, value)


def referring(name: str, document: Any, *others: Reference) -> Reference:
    return Reference(name, name, 1, Schema("JSON", json.dumps(document), others))


@pytest.mark.parametrize("draft", WITH_BOOLEANS)
@pytest.mark.parametrize(
    ("schema", "good", "bad", "path"),
    [
        (False, None, {"a": 1}, ": false: nothing is allowed for the data"),
        (
            {"properties": {"a": False}},
            {"b": 1},
            {"a": 1},
            "properties/a/false: nothing is allowed for the data at a",
        ),
        (
            {"patternProperties": {"^a": False}},
            {"b": 1},
            {"a": 1},
            "patternProperties/^a/false: nothing is allowed",
        ),
        (
            {"additionalProperties": False},
            {},
            {"a": 1},
            "additionalProperties false refuses the data",
        ),
        ({"properties": {"a": {"items": False}}}, {"a": []}, {"a": [1]}, "properties/a/items"),
        ({"allOf": [True, False]}, None, 1, "allOf"),
        ({"anyOf": [False, {"type": "string"}]}, "a", 1, "anyOf refuses the data"),
        ({"oneOf": [False, True, {"type": "string"}]}, 1, "a", "oneOf refuses the data"),
        ({"not": True}, None, 1, "not true refuses the data"),
        ({"propertyNames": False}, {}, {"a": 1}, "propertyNames"),
        (
            {"$ref": "#/definitions/no", "definitions": {"no": False}},
            None,
            1,
            "by way of $ref '#/definitions/no'",
        ),
    ],
)
def test_what_is_false_fits_nothing(
    draft: str, schema: Any, good: Any, bad: Any, path: str
) -> None:
    where = source(schema if isinstance(schema, bool) else {"$schema": DRAFTS[draft], **schema})
    assert path in refusal(where, bad)
    if good is not None:
        assert fits(where, good)


@pytest.mark.parametrize("draft", ["7", "2019", "2020"])
@pytest.mark.parametrize("branch", ["then", "else"])
def test_a_branch_that_is_false_refuses_what_comes_to_it(draft: str, branch: str) -> None:
    condition = {"required": ["legacy"]} if branch == "then" else {"not": {"required": ["legacy"]}}
    where = source({"$schema": DRAFTS[draft], "if": condition, branch: False})
    assert fits(where, {"id": 1})
    assert f"{branch}/false: nothing is allowed for the data" in refusal(where, {"legacy": 1})


@pytest.mark.parametrize("draft", ["2019", "2020"])
def test_what_is_left_over_is_refused(draft: str) -> None:
    where = source(
        {
            "$schema": DRAFTS[draft],
            "allOf": [{"properties": {"a": True}, "patternProperties": {r"^\p{Lu}": True}}],
            "unevaluatedProperties": False,
        }
    )
    assert fits(where, {"a": 1, "Ä": 2})
    assert "unevaluatedProperties false refuses the data" in refusal(where, {"a": 1, "ä": 2})


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_reference_leads_to_an_identifier_inside_of_the_document(draft: str) -> None:
    identifier = "id" if draft == "4" else "$id"
    where = source(
        {
            "$schema": DRAFTS[draft],
            identifier: "https://example.com/schemas/order.json",
            "properties": {"line": {"$ref": "line.json"}, "sku": {"$ref": "parts/sku.json"}},
            "definitions": {
                "line": {identifier: "line.json", "type": "string"},
                "sku": {
                    identifier: "https://example.com/schemas/parts/sku.json",
                    "type": "integer",
                },
            },
        }
    )
    assert fits(where, {"line": "tea", "sku": 7})
    assert "properties/line/type" in refusal(where, {"line": 7})
    assert "properties/sku/type" in refusal(where, {"sku": "tea"})


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_reference_below_an_absolute_identifier_is_a_neighbour(draft: str) -> None:
    identifier = "id" if draft == "4" else "$id"
    order = {
        "$schema": DRAFTS[draft],
        identifier: "https://example.com/schemas/order.json",
        "properties": {"line": {"$ref": "line.json"}},
    }
    where = source(order, referring("line.json", {"type": "string"}))
    assert fits(where, {"line": "tea"})
    assert "properties/line/type" in refusal(where, {"line": 7})


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("https://example.com/schemas/line.json", None),
        ("line.json", "https://example.com/schemas/line.json"),
        ("anything", "https://example.com/schemas/line.json"),
    ],
)
def test_an_absolute_reference_is_found_by_name_and_by_identifier(
    name: str, identifier: str | None
) -> None:
    line = {"type": "string"} if identifier is None else {"$id": identifier, "type": "string"}
    order = {"properties": {"line": {"$ref": "https://example.com/schemas/line.json"}}}
    where = source(order, referring(name, line))
    assert fits(where, {"line": "tea"})
    assert "properties/line/type" in refusal(where, {"line": 7})


def test_a_nested_document_finds_its_neighbours_by_its_own_place() -> None:
    sku = referring("sku.json", {"type": "integer"})
    up = referring("../sku.json", {"type": "string"})
    line = {"properties": {"near": {"$ref": "sku.json"}, "far": {"$ref": "../sku.json"}}}
    where = source(
        {"properties": {"line": {"$ref": "common/line.json"}}},
        referring("common/line.json", line, sku, up),
    )
    assert fits(where, {"line": {"near": 1, "far": "a"}})
    assert "properties/line/properties/near/type" in refusal(where, {"line": {"near": "a"}})
    assert "properties/line/properties/far/type" in refusal(where, {"line": {"far": 1}})


def test_a_document_without_a_draft_is_read_in_the_draft_of_the_one_that_refers_to_it() -> None:
    pair = {
        "items": [{"type": "string"}, {"$ref": "#/definitions/count"}],
        "definitions": {"count": {"type": "integer"}},
    }
    old = source({"$schema": DRAFTS["7"], "$ref": "pair.json"}, referring("pair.json", pair))
    assert fits(old, ["tea", 2])
    assert "items/1/type" in refusal(old, ["tea", "two"])
    named = {
        "id": "https://example.com/pair.json",
        "definitions": {"a": {"id": "#a", "type": "string"}},
        "$ref": "#a",
    }
    oldest = source(
        {"$schema": DRAFTS["4"], "allOf": [{"$ref": "pair.json"}]}, referring("pair.json", named)
    )
    assert fits(oldest, "tea")
    assert "type" in refusal(oldest, 7)


def test_a_document_of_another_draft_is_read_in_its_own() -> None:
    pair = {"$schema": DRAFTS["7"], "items": [{"type": "string"}, {"type": "integer"}]}
    where = source(
        {"$schema": DRAFTS["2020"], "properties": {"pair": {"$ref": "pair.json"}}},
        referring("pair.json", pair),
    )
    assert fits(where, {"pair": ["tea", 2]})
    assert "properties/pair/items/1/type" in refusal(where, {"pair": ["tea", "two"]})


UNKNOWN_DRAFT = {"$schema": "https://example.com/our-draft"}


@pytest.mark.parametrize("named", [{}, UNKNOWN_DRAFT])
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"prefixItems": [{"type": "string"}]}, ["a"], [1]),
        ({"items": [{"type": "string"}]}, ["a"], [1]),
        ({"properties": {"a": {"$id": "#/properties/a", "type": "string"}}}, {"a": "x"}, {"a": 1}),
    ],
)
def test_a_document_that_names_no_draft_is_of_the_newest_or_of_draft_7(
    named: dict[str, str], schema: dict[str, Any], good: Any, bad: Any
) -> None:
    where = source({**named, **schema})
    assert fits(where, good)
    assert not fits(where, bad)


@pytest.mark.parametrize(
    "schema",
    [
        {"prefixItems": 5},
        {"const": 1, "dependentRequired": []},
        {"items": [{"type": "strin"}]},
        {"$id": 5},
    ],
)
def test_a_mistake_is_no_reason_to_take_a_document_for_an_older_one(schema: dict[str, Any]) -> None:
    assert "is no JSON Schema that can be used" in refusal(source(schema), 1)


@pytest.mark.parametrize(
    "uri", ["https://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-04/schema"]
)
def test_an_old_draft_may_be_named_by_https_or_without_a_fragment(uri: str) -> None:
    where = source({"$schema": uri, "minimum": 1, "exclusiveMinimum": True})
    assert fits(where, 2)
    assert not fits(where, 1)


def test_a_reference_to_the_schema_of_schemas_is_followed() -> None:
    where = source({"$schema": DRAFTS["7"], "properties": {"schema": {"$ref": DRAFTS["7"]}}})
    assert fits(where, {"schema": {"type": "string"}})
    assert "properties/schema" in refusal(where, {"schema": {"type": 7}})


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_schema_that_refers_to_itself_names_that_reference(draft: str) -> None:
    node = {
        "$schema": DRAFTS[draft],
        "properties": {"next": {"$ref": "#"}, "id": {"type": "integer"}},
    }
    assert fits(source(node), {"next": {"next": {"id": 1}}})
    assert refusal(source(node), {"next": {"next": {"id": "a"}}}) == (
        "does not fit the JSON Schema, schema 1: properties/next/properties/next/properties/id/type: "
        "type \"integer\" refuses the data at next/next/id, by way of $ref '#', '#'"
    )


def test_a_dynamic_reference_is_followed_and_one_that_leads_nowhere_is_named() -> None:
    tree = {
        "$schema": DRAFTS["2020"],
        "$id": "https://example.com/tree",
        "$dynamicAnchor": "node",
        "properties": {
            "children": {"items": {"$dynamicRef": "#node"}},
            "odd": {"$dynamicRef": "#none"},
        },
    }
    strict = {
        "$schema": DRAFTS["2020"],
        "$id": "https://example.com/strict",
        "$dynamicAnchor": "node",
        "$ref": "tree",
        "unevaluatedProperties": False,
    }
    where = source(strict, referring("tree", tree))
    assert fits(where, {"children": [{"children": []}]})
    assert "unevaluatedProperties" in refusal(where, {"children": [{"other": 1}]})
    assert "cannot be followed" in refusal(source(tree), {"odd": 1})


def test_a_reference_that_leads_nowhere_is_named_and_refuses_only_what_comes_by_it() -> None:
    where = source(
        {"properties": {"a": {"$ref": "#/definitions/none"}, "b": {"$ref": "gone.json"}}}
    )
    assert fits(where, {"c": 1})
    assert "the reference '#/definitions/none' cannot be followed" in refusal(where, {"a": 1})
    assert "the reference 'gone.json' cannot be followed" in refusal(where, {"b": 1})
    assert "lead in a circle" in refusal(source({"$ref": "#"}), 1)


def written(folder: Path, **files: Any) -> str:
    """Files of these names, `__` for a slash; the path of order.json."""
    for name, document in files.items():
        path = folder / (name.replace("__", "/") + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    return str(folder / "order.json")


def read_with(file: str, value: Any) -> str:
    return refusal(dataclasses.replace(source({}), file=file), value)


@pytest.mark.parametrize(
    "identifier",
    [
        None,
        "https://example.com/schemas/order.json",
        "order.json",
        "urn:example:order",
        "/x/order.json",
    ],
)
def test_files_refer_to_their_neighbours(tmp_path: Path, identifier: str | None) -> None:
    order = {
        "properties": {
            "line": {"$ref": "common/line.json"},
            "sku": {"$ref": "./sku.json#/definitions/sku"},
        }
    }
    file = written(
        tmp_path,
        order=order if identifier is None else {"$id": identifier, **order},
        sku={"definitions": {"sku": {"type": "string"}}},
        common__line={
            "properties": {
                "near": {"$ref": "sku.json"},
                "far": {"$ref": "../sku.json#/definitions/sku"},
            }
        },
        common__sku={"type": "integer"},
    )
    assert read_with(file, {"line": {"near": 1, "far": "a"}, "sku": "a"}) == ""
    assert "properties/sku/type" in read_with(file, {"sku": 1})
    assert "properties/line/properties/near/type" in read_with(file, {"line": {"near": "a"}})
    assert "properties/line/properties/far/type" in read_with(file, {"line": {"far": 1}})


def test_files_of_one_name_have_subjects_of_their_own(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        order={"allOf": [{"$ref": "a/line.json"}, {"$ref": "b/line.json"}]},
        a__line={"$ref": "sku.json"},
        a__sku={"type": ["integer", "string"]},
        b__line={"$ref": "sku.json"},
        b__sku={"type": "integer"},
    )
    encode = encoder_for("json-schema", SchemaSource(ChannelSchemas("out"), "orders", file=file))
    with pytest.raises(SchemaMissing) as missing:
        encode(7)
    assert isinstance(missing.value.ask, IdOf)
    lines = missing.value.ask.schema.references
    assert [(one.name, one.subject) for one in lines] == [
        ("a/line.json", "a/line.json"),
        ("b/line.json", "b/line.json"),
    ]
    assert [(one.name, one.subject) for line in lines for one in line.schema.references] == [
        ("sku.json", "a/sku.json"),
        ("sku.json", "b/sku.json"),
    ]
    assert read_with(file, 7) == ""
    assert "allOf/1/type" in read_with(file, "tea")


def test_an_absolute_reference_to_a_neighbour_is_a_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        order={
            "$id": "https://example.com/schemas/order.json",
            "properties": {"line": {"$ref": "https://example.com/schemas/parts/line.json"}},
        },
        parts__line={
            "$id": "https://example.com/schemas/parts/line.json",
            "properties": {"sku": {"$ref": "sku.json"}},
        },
        parts__sku={"type": "integer"},
    )
    assert read_with(file, {"line": {"sku": 1}}) == ""
    assert "properties/line/properties/sku/type" in read_with(file, {"line": {"sku": "a"}})


@pytest.mark.parametrize("keyword", ["enum", "const", "default", "examples"])
def test_a_reference_that_is_data_names_no_file(tmp_path: Path, keyword: str) -> None:
    data = [{"$ref": "line.json"}] if keyword in ("enum", "examples") else {"$ref": "line.json"}
    file = written(
        tmp_path, order={"properties": {"link": {keyword: data}, "$ref": {"type": "string"}}}
    )
    assert read_with(file, {"link": {"$ref": "line.json"}, "$ref": "line.json"}) == ""


def test_a_file_that_refers_to_itself_by_its_identifier_is_no_circle(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        order={
            "$id": "https://example.com/order.json",
            "properties": {"next": {"$ref": "order.json"}, "id": {"type": "integer"}},
        },
    )
    assert read_with(file, {"next": {"next": {"id": 1}}}) == ""
    assert "properties/id/type" in read_with(file, {"next": {"next": {"id": "a"}}})


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"order": {"$ref": "common/line.json"}, "common__line": {"$ref": "../order.json"}},
            "refers to itself",
        ),
        ({"order": {"$ref": "line.json"}}, "line.json cannot be read"),
        (
            {"order": {"$ref": "#/definitions/none"}},
            "refers to '#/definitions/none', which leads nowhere",
        ),
        (
            {"order": {"$ref": "https://example.com/x.json"}},
            "'https://example.com/x.json', which leads nowhere",
        ),
        (
            {"order": {"$ref": "line.json#/a"}, "line": {"b": {}}},
            "refers to 'line.json#/a', which leads nowhere",
        ),
        (
            {"order": {"properties": 7}},
            "no JSON Schema that can be used: properties: 7 is not of type 'object'",
        ),
        (
            {"order": {"items": {"type": "strin"}}},
            "no JSON Schema that can be used: items/type: 'strin' is not valid",
        ),
    ],
)
def test_a_file_whose_references_lead_nowhere_is_refused_at_the_start(
    tmp_path: Path, files: dict[str, Any], said: str
) -> None:
    file = written(tmp_path, **files)
    with pytest.raises(FormatError, match=said):
        read_with(file, 1)


@pytest.mark.parametrize("draft", DRAFTS)
def test_patterns_are_those_of_ecma(draft: str) -> None:
    where = source(
        {
            "$schema": DRAFTS[draft],
            "properties": {
                "name": {"pattern": r"^\p{L}+$"},
                "sku": {"pattern": r"^\d{3}\/(?<x>[A-Z])\k<x>$"},
            },
            "patternProperties": {
                r"^x-\p{Lu}": {"type": "integer"},
                "^y/": {"type": "string"},
                r"^y\/": {"maxLength": 3},
            },
            "additionalProperties": False,
        }
    )
    assert fits(where, {"name": "Jürgen", "sku": "123/AA", "x-Ä": 1, "y/": "abc"})
    assert not fits(where, {"name": "Jürgen\n"})
    assert not fits(where, {"sku": "١٢٣/AA"})
    assert not fits(where, {"x-Ä": "a"})
    assert not fits(where, {"x-ä": 1})
    assert not fits(where, {"y/": 1})
    assert not fits(where, {"y/": "abcd"})


@pytest.mark.parametrize("draft", DRAFTS)
def test_multiples_are_those_of_the_numbers_as_they_are_written(draft: str) -> None:
    where = source(
        {
            "$schema": DRAFTS[draft],
            "properties": {
                "price": {"type": "number", "multipleOf": 0.01},
                "grams": {"type": "number", "multipleOf": 2.5e-7},
                "dozens": {"type": "integer", "multipleOf": 12},
            },
        }
    )
    for price in (0.07, 4.35, 19.99, -0.29, 1e22, 1e308, 3, 10**400, 123456789.01):
        assert fits(where, {"price": price}), price
    for price in (0.075, 19.995, 1e-9, 1234567.891, float("nan"), float("inf"), True):
        assert not fits(where, {"price": price}), price
    assert fits(where, {"grams": 7.5e-7, "dozens": 144})
    assert not fits(where, {"grams": 3e-7})
    assert not fits(where, {"dozens": 13})
    price = "properties/price/multipleOf: multipleOf 0.01 refuses the data at price"
    assert refusal(where, {"price": 0.005}).endswith(price)


@pytest.mark.parametrize("draft", DRAFTS)
def test_many_items_are_found_to_be_unique_in_a_moment(draft: str) -> None:
    where = source({"$schema": DRAFTS[draft], "uniqueItems": True})
    items: list[Any] = [[{"line": number, "tags": [None, "a"]}] for number in range(5_000)]
    began = time.process_time()
    assert fits(where, [*items, 1, "1", [1], True, [True], {"a": 1}, {"a": True}, None, "", [], {}])
    assert not fits(where, [*items, 1, 1.0])
    assert not fits(where, [{"a": [1], "b": 2}, *items, {"b": 2.0, "a": [1]}])
    # Compared with each other they would take half a minute.
    assert time.process_time() - began < 5


def test_a_reference_by_way_of_a_pattern_is_followed() -> None:
    where = source(
        {
            "patternProperties": {r"^\d~": {"type": "integer"}},
            "properties": {"a": {"$ref": r"#/patternProperties/^\d~0"}},
        }
    )
    assert fits(where, {"a": 1})
    assert not fits(where, {"a": "x"})


GREEK = r"^\p{Script=Greek}+$"


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {"properties": {"a": {"pattern": GREEK, "maxLength": 3}}, "required": ["a"]},
            {"a": "x"},
            [{}, {"a": "long"}],
        ),
        (
            {"properties": {"a": {"not": {"pattern": GREEK}}, "b": {"type": "string"}}},
            {"a": "x", "b": ""},
            [{"b": 1}],
        ),
        ({"oneOf": [{"pattern": GREEK}, {"type": "string"}]}, "x", []),
        ({"anyOf": [{"type": "integer"}, {"pattern": GREEK, "type": "string"}]}, "x", [None]),
        ({"if": {"pattern": GREEK}, "then": {"maxLength": 1}, "else": {"minLength": 5}}, "xyz", []),
        ({"allOf": [{"pattern": GREEK}, {"not": {"pattern": GREEK}}], "type": "string"}, "x", [1]),
        ({"propertyNames": {"pattern": GREEK}, "maxProperties": 1}, {"x": 1}, [{"x": 1, "y": 2}]),
        (
            {
                "patternProperties": {GREEK: {"type": "integer"}},
                "additionalProperties": False,
                "required": ["a"],
            },
            {"a": "x", "b": 2},
            [{"b": 2}],
        ),
        (
            {
                "allOf": [{"patternProperties": {GREEK: {"type": "integer"}}}],
                "unevaluatedProperties": False,
            },
            {"a": "x", "b": 2},
            [],
        ),
        (
            {
                "properties": {"b": {"type": "string"}},
                "allOf": [{"patternProperties": {GREEK: {"type": "integer"}}}],
                "unevaluatedProperties": False,
            },
            {"a": 1, "b": "x"},
            [{"b": 1}],
        ),
        (
            {"$ref": "#/$defs/name", "$defs": {"name": {"pattern": GREEK, "type": "string"}}},
            "x",
            [1],
        ),
        ({"items": {"pattern": "("}, "type": "array"}, ["x"], ["x"]),
    ],
)
def test_a_pattern_that_cannot_be_checked_refuses_nothing_and_the_rest_of_its_schema_is_checked(
    schema: dict[str, Any], good: Any, bad: list[Any]
) -> None:
    where = source(schema)
    assert refusal(where, good) == ""
    for value in bad:
        assert not fits(where, value)


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (
            {"properties": {"name": {"pattern": r"^\p{L}+$"}}},
            {"name": "4711"},
            r"properties/name/pattern: pattern '^\p{L}+$' refuses the data at name",
        ),
        (
            {"patternProperties": {r"^\w$": {"maxLength": 2}}},
            {"s": "secret"},
            r"patternProperties/^\w$/maxLength: maxLength 2 refuses the data at *",
        ),
        (
            {
                "properties": {"lines": {"items": {"$ref": "#/$defs/line"}}},
                "$defs": {"line": {"required": ["sku"]}},
            },
            {"lines": [{}]},
            'properties/lines/items/required: required ["sku"] refuses the data at lines/0'
            ", by way of $ref '#/$defs/line'",
        ),
        ({"type": "object"}, 4711, 'type: type "object" refuses the data'),
        (
            {"additionalProperties": {"type": "null"}},
            {"s": 1},
            'additionalProperties/type: type "null" refuses the data at *',
        ),
        ({"enum": ["x" * 200]}, 4711, "enum: enum refuses the data"),
        ({"anyOf": [{"type": "null"}]}, 4711, "anyOf: anyOf refuses the data"),
    ],
)
def test_a_reason_names_the_keyword_both_paths_and_the_pattern_and_quotes_no_data(
    schema: dict[str, Any], value: Any, reason: str
) -> None:
    assert refusal(source(schema), value) == f"does not fit the JSON Schema, schema 1: {reason}"
