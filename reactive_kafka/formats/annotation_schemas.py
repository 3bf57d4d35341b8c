"""JSON Schemas of annotated types, by pydantic and, for its structs, msgspec: in draft 7, for
documents about them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from reactive_kafka.formats.models import portable
from reactive_kafka.formats.payload_type import has_struct

Schema = dict[str, Any]
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_DATA = ("default", "const", "enum", "examples", "example")


@dataclass(frozen=True, slots=True)
class DescribedType:
    """A type, as it is read or as it is written: a model may use other names for each."""

    annotation: Any
    mode: Literal["validation", "serialization"]


def schemas_of_types(
    asked: Sequence[DescribedType], where: str
) -> tuple[list[Schema], dict[str, Schema]]:
    """The schema of each, and those of the models by name, which the first refer to as *where* plus
    the name.

    What neither library can describe has the empty schema, which fits everything.
    """
    structs = [index for index, one in enumerate(asked) if has_struct(one.annotation)]
    found, models = _by_pydantic(
        {index: one for index, one in enumerate(asked) if index not in structs}, where
    )
    if structs:
        others, more = _by_msgspec({index: asked[index].annotation for index in structs}, where)
        if models.keys() & more.keys():
            others, more = _by_msgspec(
                {index: asked[index].annotation for index in structs}, f"{where}msgspec."
            )
            more = {f"msgspec.{name}": schema for name, schema in more.items()}
        found = found | others
        models = models | more
    told = [_draft_7(found.get(index, {})) for index in range(len(asked))]
    return told, {name: _draft_7(schema) for name, schema in models.items()}


def _by_pydantic(
    asked: Mapping[int, DescribedType], where: str
) -> tuple[dict[int, Schema], dict[str, Schema]]:
    adapters: dict[int, TypeAdapter[Any]] = {}
    # Of defaults that have no JSON: they are left out.
    with warnings.catch_warnings(action="ignore"):
        for index, one in asked.items():
            try:
                adapter: TypeAdapter[Any] = TypeAdapter(portable(one.annotation))
                adapter.json_schema(mode=one.mode)
            except Exception:
                # It may be the user's own code, which may raise anything.
                continue
            adapters[index] = adapter
        inputs = [(index, asked[index].mode, adapter) for index, adapter in adapters.items()]
        found, whole = TypeAdapter.json_schemas(inputs, ref_template=f"{where}{{model}}")
    return {index: schema for (index, _), schema in found.items()}, whole.get("$defs", {})


def _by_msgspec(
    asked: Mapping[int, Any], where: str
) -> tuple[dict[int, Schema], dict[str, Schema]]:
    import msgspec

    def components(types: Sequence[Any]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
        return msgspec.json.schema_components(types, ref_template=f"{where}{{name}}")

    able = {}
    for index, annotation in asked.items():
        try:
            components([annotation])
        except (TypeError, NameError):
            continue
        able[index] = annotation
    found, models = components(list(able.values()))
    return dict(zip(able, found, strict=True)), models


def _draft_7(schema: Any) -> Any:
    """The schema in the words of draft 7, as AsyncAPI has them; it has no discriminator like
    OpenAPI's.
    """
    if isinstance(schema, list):
        return [_draft_7(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {}
    for word, value in schema.items():
        if word in _DATA:
            told[word] = value
        elif word in _BY_NAME:
            told[word] = {name: _draft_7(one) for name, one in value.items()}
        elif word == "prefixItems":
            told["items"] = _draft_7(value)
        elif word == "items" and "prefixItems" in schema:
            told["additionalItems"] = _draft_7(value)
        elif not (word == "discriminator" and isinstance(value, dict)):
            told[word] = _draft_7(value)
    return told
