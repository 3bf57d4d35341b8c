"""What filters and ``when=`` ask for: a decoded message, or the record as it came. No I/O."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from reactive_kafka.handlers.introspection import resolved
from reactive_kafka.handlers.parameters import record_parameter
from reactive_kafka.verdicts.message import Message

_UNDECODED = ("Message[bytes]", "Message[bytes|None]", "Message[None|bytes]")


def takes_undecoded(predicate: Callable[[Message[Any]], object] | None) -> bool:
    """Return whether the parameter of a predicate is annotated ``Message[bytes]``.

    ``Message[bytes | None]`` is the same. Any other annotation asks for a decoded message, and so
    does none.
    """
    if predicate is None:
        return False
    try:
        parameter = record_parameter(predicate)
    except (ValueError, TypeError, IndexError):
        # It has no signature that can be read, or takes only ``*args``.
        return False
    annotation = resolved(parameter.annotation, predicate)
    if isinstance(annotation, str):
        # Message may be imported only for type checkers.
        return annotation.replace(" ", "").rpartition(".")[2] in _UNDECODED
    if typing.get_origin(annotation) is not Message:
        return False
    (payload,) = typing.get_args(annotation)
    return payload is bytes or payload == bytes | None
