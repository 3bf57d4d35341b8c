"""The names of formats that a configuration may use."""

from __future__ import annotations

from reactive_kafka.errors import ReactiveKafkaError
from reactive_kafka.near_names import near_names

# Name -> bytes that are written. Readers take 4 and 8 bytes for each.
INTEGERS = {"int": 8, "int64": 8, "int32": 4}
FLOATS = {"float": 8, "float64": 8, "float32": 4}
EVENTS = "cloudevents"
KEY_FORMATS = ("json", "string", "bytes", *INTEGERS, *FLOATS)
# A CloudEvent is a whole record, so no key can be one.
BUILT_FORMATS = (*KEY_FORMATS, EVENTS)
# Formats whose schemas are in a registry.
REGISTERED_FORMATS = ("avro", "json-schema", "protobuf")
FORMATS = (*BUILT_FORMATS, *REGISTERED_FORMATS)


class FormatError(ReactiveKafkaError, ValueError):
    """A format is unknown, cannot be imported, or contradicts the annotation. Start-up fails."""


def unknown_format(name: str) -> FormatError:
    """Return the error for a format that is neither built in nor ``module:function``."""
    if name in REGISTERED_FORMATS:
        return FormatError(
            f"the format {name!r} is for values and keys of records only, which have a schema"
        )
    close = near_names(name.lower(), FORMATS)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return FormatError(
        f"the format {name!r} does not exist: {hint}"
        f"allowed: {', '.join(FORMATS)} or module:function"
    )
