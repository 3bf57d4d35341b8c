"""Reads the fields of a payload model: a dataclass, a pydantic model or a msgspec Struct. Pure."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from reactive_kafka.spark.batches.scalars import BytesForm, TimeForm


class UnreadableModelError(ValueError):
    """The fields of a model are unknown, or cannot be found in JSON.

    Its text continues a sentence that begins with the name of the model or field.
    """


@dataclass(frozen=True, slots=True)
class ModelField:
    """One field of a model."""

    # The name in Python, and of its column.
    name: str
    # The name in JSON: the alias, if there is one.
    json_name: str
    annotation: Any
    # It has no default.
    required: bool
    # The number of all digits, and of those after the point, if the model limits both.
    decimal: tuple[int, int] | None = None


class Forms(NamedTuple):
    """How a model's JSON writes bytes and times."""

    bytes: BytesForm
    times: TimeForm

    def of_part(self, own: Forms | None) -> Forms:
        """Return the forms in a model inside of this one, whose own forms are *own*."""
        if own is None or self.times is TimeForm.MSGSPEC:
            # msgspec reads a struct together with everything inside of it.
            return self
        return own


PLAIN_FORMS = Forms(BytesForm.TEXT, TimeForm.PYDANTIC)
MSGSPEC_FORMS = Forms(BytesForm.BASE64, TimeForm.MSGSPEC)


@dataclass(frozen=True, slots=True)
class ModelFields:
    """The fields of a model, in its order."""

    fields: tuple[ModelField, ...]
    # None: the forms of the model around it.
    forms: Forms | None = None


def is_model(kind: Any) -> bool:
    """True if *kind* is a class that :func:`fields_of` can read."""
    if not isinstance(kind, type):
        return False
    return _is_struct(kind) or hasattr(kind, "model_fields") or dataclasses.is_dataclass(kind)


def fields_of(model: type) -> ModelFields:
    """Return the fields of a model.

    Raises:
        UnreadableModelError: An annotation has an unknown name, or an alias is not one name.
    """
    try:
        if _is_struct(model):
            return ModelFields(tuple(_of_struct(model)), MSGSPEC_FORMS)
        config = getattr(model, "model_config", None)
        if config is None:
            config = getattr(model, "__pydantic_config__", None)
        forms = None if config is None else _forms(config)
        return ModelFields(tuple(_of_model(model, config or {})), forms)
    except NameError as error:
        raise UnreadableModelError(f"its annotations cannot be read: {error}") from None


def _forms(config: Any) -> Forms:
    takes_numbers = not config.get("strict") and config.get("val_temporal_unit", "infer") == "infer"
    return Forms(
        BytesForm(config.get("val_json_bytes", "utf8")),
        TimeForm.PYDANTIC if takes_numbers else TimeForm.PYDANTIC_TEXT,
    )


def _is_struct(kind: type) -> bool:
    # If the class is a Struct, msgspec is imported already.
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and issubclass(kind, msgspec.Struct)


def _of_struct(model: Any) -> Iterator[ModelField]:
    import msgspec

    if model.__struct_config__.array_like:
        raise UnreadableModelError(
            "it is read from JSON arrays (array_like), and columns come from objects"
        )
    for field in msgspec.structs.fields(model):
        yield ModelField(field.name, field.encode_name, _without_unset(field.type), field.required)


def _without_unset(annotation: Any) -> Any:
    """Return ``int`` for ``int | UnsetType``, which is an int that may be missing."""
    kinds = typing.get_args(annotation)
    left = [kind for kind in kinds if getattr(kind, "__name__", "") != "UnsetType"]
    if left and len(left) < len(kinds):
        return typing.Union[tuple(left)]  # noqa: UP007
    return annotation


def _of_model(model: Any, config: Any) -> Iterator[ModelField]:
    fields = _pydantic_fields(model)
    if fields is None:
        yield from _of_dataclass(model)
    for name, field in (fields or {}).items():
        alias = field.validation_alias if field.validation_alias is not None else field.alias
        if alias is None or config.get("validate_by_alias") is False:
            alias = name
        if not isinstance(alias, str):
            raise UnreadableModelError(
                f"field {name!r} has an alias that is no single name: {alias!r}"
            )
        yield ModelField(
            name, alias, field.annotation, field.is_required(), _limits(field.metadata)
        )


def _pydantic_fields(model: Any) -> Any:
    """Return name -> FieldInfo of a pydantic model or dataclass, or None for other classes."""
    if getattr(model, "__pydantic_root_model__", False):
        raise UnreadableModelError("it is a RootModel, and has no fields")
    if hasattr(model, "model_rebuild") or hasattr(model, "__pydantic_fields__"):
        if not getattr(model, "__pydantic_complete__", True) and hasattr(model, "model_rebuild"):
            model.model_rebuild()
        return model.__pydantic_fields__
    return None


def _of_dataclass(model: Any) -> Iterator[ModelField]:
    hints = typing.get_type_hints(model, include_extras=True)
    missing = dataclasses.MISSING
    for field in dataclasses.fields(model):
        if field.init:
            hint = hints[field.name]
            required = field.default is missing and field.default_factory is missing
            limits = _limits(getattr(hint, "__metadata__", ()))
            yield ModelField(field.name, field.name, hint, required, limits)


def _limits(metadata: Any) -> tuple[int, int] | None:
    """Return the numbers of ``Field(max_digits=10, decimal_places=2)`` in a field's metadata."""
    # A FieldInfo of pydantic has metadata of its own.
    items = []
    for item in metadata:
        items += [item, *getattr(item, "metadata", ())]
    digits = _first_attribute(items, "max_digits")
    places = _first_attribute(items, "decimal_places")
    if digits is None or places is None:
        return None
    return digits, places


def _first_attribute(items: list[Any], name: str) -> Any:
    values = (getattr(item, name, None) for item in items)
    return next((value for value in values if value is not None), None)
