"""Checks the objects of a memory channel, which are never bytes, against an annotation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder, Explain, guarded
from reactive_kafka.formats.payload_type import PayloadType, payload_type_of


def checker_for(annotation: object) -> Decoder | None:
    """Return what a value passes through before the handler gets it; None: anything fits.

    An instance of what the annotation asks for passes unchanged. Anything else is validated into
    it, by pydantic or msgspec; the checker raises DecodeError if it does not fit. With an
    annotation that nothing can check, anything fits.
    """
    payload_type = payload_type_of(annotation)
    if payload_type.base in (Any, object) and not payload_type.is_constrained:
        return None
    found = _validator(payload_type)
    if found is None:
        return None
    validate, explain = found
    kind = payload_type.base
    has_instances = _is_class(kind) and not payload_type.is_constrained

    def check(value: Any) -> object:
        return value if isinstance(value, kind) else validate(value)

    # guarded() takes readers of bytes; here they read objects.
    read = cast("Callable[[bytes], object]", check if has_instances else validate)
    return guarded(read, payload_type, explain)


def _is_class(base: Any) -> bool:
    """Return whether isinstance works with it; with a TypedDict it does not."""
    try:
        isinstance(None, base)
    except TypeError:
        return False
    return isinstance(base, type)


def _validator(payload_type: PayloadType) -> tuple[Callable[[Any], object], Explain] | None:
    """Return the validator of a type; None: nothing can check it.

    For a class that no library knows, the validator accepts only its instances.
    """
    from pydantic import ConfigDict, TypeAdapter

    from reactive_kafka.formats.models import explain_model, model_for

    try:
        model = model_for(payload_type)
    except FormatError:
        pass
    else:
        return model.from_object, model.explain
    try:
        instances: TypeAdapter[Any] = TypeAdapter(
            payload_type.annotation, config=ConfigDict(arbitrary_types_allowed=True)
        )
        return instances.validate_python, explain_model(payload_type.name, ())
    except Exception:
        # It may run code of the user, which may raise anything.
        return None
