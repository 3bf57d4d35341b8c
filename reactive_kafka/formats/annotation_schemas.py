"""Makes JSON Schemas of annotated types, for documents. They are written in draft 7.

Pydantic makes them, except for the structs of msgspec.
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
# Words whose value maps names to schemas, so that the names must not be taken for words.
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
# Words whose value is data, not a schema.
_DATA = ("default", "const", "enum", "examples", "example")


@dataclass(frozen=True, slots=True)
class DescribedType:
    """A type to describe.

    Attributes:
        mode: Describe it as it is read, or as it is written. A model may use other names for each.
    """

    annotation: Any
    mode: Literal["validation", "serialization"]


def schemas_of_types(
    described: Sequence[DescribedType], where: str
) -> tuple[list[Schema], dict[str, Schema]]:
    """Return the schema of each type, and the schemas of the models in them by name.

    A type that neither library can describe has the empty schema, which allows everything.

    Args:
        described: The types.
        where: A reference to a model is this, and the model's name.
    """
    for_pydantic = {}
    for_msgspec = {}
    for index, described_type in enumerate(described):
        if has_struct(described_type.annotation):
            for_msgspec[index] = described_type.annotation
        else:
            for_pydantic[index] = described_type
    found, models = _by_pydantic(for_pydantic, where)
    if for_msgspec:
        struct_schemas, structs = _by_msgspec(for_msgspec, where)
        if models.keys() & structs.keys():
            # A struct and a model of the same name must not share a reference.
            struct_schemas, structs = _by_msgspec(for_msgspec, f"{where}msgspec.")
            structs = {f"msgspec.{name}": schema for name, schema in structs.items()}
        found = found | struct_schemas
        models = models | structs
    schemas = [_draft_7(found.get(index, {})) for index in range(len(described))]
    return schemas, {name: _draft_7(schema) for name, schema in models.items()}


def _by_pydantic(
    described: Mapping[int, DescribedType], where: str
) -> tuple[dict[int, Schema], dict[str, Schema]]:
    adapters: dict[int, TypeAdapter[Any]] = {}
    # Pydantic warns about defaults that cannot be JSON, and leaves them out.
    with warnings.catch_warnings(action="ignore"):
        for index, described_type in described.items():
            try:
                adapter: TypeAdapter[Any] = TypeAdapter(portable(described_type.annotation))
                adapter.json_schema(mode=described_type.mode)
            except Exception:
                # It may run code of the user, which may raise anything.
                continue
            adapters[index] = adapter
        inputs = [(index, described[index].mode, adapter) for index, adapter in adapters.items()]
        found, whole = TypeAdapter.json_schemas(inputs, ref_template=f"{where}{{model}}")
    return {index: schema for (index, _), schema in found.items()}, whole.get("$defs", {})


def _by_msgspec(
    annotations: Mapping[int, Any], where: str
) -> tuple[dict[int, Schema], dict[str, Schema]]:
    import msgspec

    def components(types: Sequence[Any]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
        return msgspec.json.schema_components(types, ref_template=f"{where}{{name}}")

    describable = {}
    for index, annotation in annotations.items():
        try:
            components([annotation])
        except (TypeError, NameError):
            continue
        describable[index] = annotation
    found, models = components(list(describable.values()))
    return dict(zip(describable, found, strict=True)), models


def _draft_7(schema: Any) -> Any:
    """Return the schema in the words of draft 7, which AsyncAPI uses.

    The discriminator of OpenAPI is left out: AsyncAPI does not have it.
    """
    if isinstance(schema, list):
        return [_draft_7(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    translated: Schema = {}
    for word, value in schema.items():
        if word in _DATA:
            translated[word] = value
        elif word in _MAPS_OF_SCHEMAS:
            translated[word] = {name: _draft_7(member) for name, member in value.items()}
        elif word == "prefixItems":
            translated["items"] = _draft_7(value)
        elif word == "items" and "prefixItems" in schema:
            translated["additionalItems"] = _draft_7(value)
        elif not (word == "discriminator" and isinstance(value, dict)):
            translated[word] = _draft_7(value)
    return translated
