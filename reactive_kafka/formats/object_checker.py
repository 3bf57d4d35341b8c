"""Objects that stay objects: what comes through a memory channel, checked against the handler's
annotation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder, Explain, guarded
from reactive_kafka.formats.payload_type import PayloadType, payload_type_of


def checker_for(payload_type: object) -> Decoder | None:
    """What a value goes through before the handler gets it; None: the handler takes anything.

    An instance of what the annotation asks for passes as it is. Anything else is validated into
    that, as by pydantic or msgspec; the checker raises DecodeError where it does not fit. An
    annotation that nothing can check asks for nothing.
    """
    asked = payload_type_of(payload_type)
    if asked.base in (Any, object) and not asked.constrained:
        return None
    kind = asked.base if _is_class(asked.base) and not asked.constrained else None
    found = _validator(asked)
    if found is None:
        return None
    validate, explain = found

    def check(value: Any) -> object:
        return value if kind is not None and isinstance(value, kind) else validate(value)

    return guarded(cast("Callable[[bytes], object]", check), asked, explain)


def _is_class(base: Any) -> bool:
    """Whether values can be asked whether they are instances: those of a TypedDict cannot."""
    try:
        isinstance(None, base)
    except TypeError:
        return False
    return isinstance(base, type)


def _validator(asked: PayloadType) -> tuple[Callable[[Any], object], Explain] | None:
    """The validator of a type; of classes that none knows, one that takes their instances only."""
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticUserError
    from pydantic_core import SchemaError

    from reactive_kafka.formats.models import explain_model, model_for

    try:
        model = model_for(asked)
    except FormatError:
        pass
    else:
        return model.from_object, model.explain
    try:
        loose: TypeAdapter[Any] = TypeAdapter(
            asked.annotation, config=ConfigDict(arbitrary_types_allowed=True)
        )
        return loose.validate_python, explain_model(asked.name, ())
    except (PydanticUserError, SchemaError):
        return None
