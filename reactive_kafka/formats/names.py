"""The names of formats that a configuration may use, and the error for all others."""

from __future__ import annotations

import difflib

from reactive_kafka.errors import ReactiveKafkaError

INTEGERS = {"int": 8, "int64": 8, "int32": 4}  # name -> bytes written; readers take 4 and 8
FLOATS = {"float": 8, "float64": 8, "float32": 4}
BUILT_FORMATS = ("json", "string", "bytes", *INTEGERS, *FLOATS)
LATER_FORMATS = ("avro", "protobuf", "cloudevents", "json-schema")


class FormatError(ReactiveKafkaError, ValueError):
    """A format is unknown, cannot be imported, or contradicts the annotation. Raised at start-up."""


def unusable(name: str) -> FormatError:
    """The error for a format that is neither built in nor ``module:function``."""
    allowed = f"allowed: {', '.join(BUILT_FORMATS)} or module:function"
    if name.lower() in LATER_FORMATS:
        return FormatError(f"the format {name!r} is not supported yet ({allowed})")
    close = difflib.get_close_matches(name.lower(), BUILT_FORMATS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return FormatError(f"the format {name!r} does not exist: {hint}{allowed}")
