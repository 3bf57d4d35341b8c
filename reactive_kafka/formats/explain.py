"""Why bytes do not fit a type, without quoting the record: no value, and no key that only the record has.

:func:`guarded` is around every decoder.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.wanted import Wanted

Decoder = Callable[[bytes | None], object]
Read = Callable[[bytes], object]
Explain = Callable[[Exception], DecodeError]

_SHOWN = 3  # problems named in the text; the others are counted
_PYDANTIC_TYPES = frozenset(get_args(ErrorType))
_FROM_THE_RECORD = frozenset({"error", "encoding_error", "tag", "tz_actual"})  # placeholders that quote what was read
_MSGSPEC_SAFE = re.compile(r"Expected |Object missing required field |Integer value out of range|Number out of range")
_MSGSPEC_PATH = re.compile(r" - at `(\$[^`]*)`$")


def guarded(read: Read, wanted: Wanted, explain: Explain) -> Decoder:
    """A decoder that calls *read* and raises only :class:`DecodeError`, SystemExit and KeyboardInterrupt.

    Args:
        read: Bytes -> value; may raise anything.
        wanted: Decides whether a record without a value fits.
        explain: Makes the DecodeError. Its text never quotes the record; its ``__cause__``, if set, is kept.
    """
    refusal = wanted.tombstone_refusal

    def decode(value: bytes | None) -> object:
        if value is None:
            if refusal is None:
                return None
            raise DecodeError(refusal)
        try:
            return read(value)
        except (SystemExit, KeyboardInterrupt):
            raise  # a request to end the process is no statement about the record
        except Exception as error:  # whatever user code raises, it means that this record does not fit
            refused = explain(error)
            raise refused from refused.__cause__
        except BaseException as error:  # nothing here awaits, so even a CancelledError is user code's own
            raise DecodeError(f"decoding it raised {type(error).__name__}") from error

    return decode


def explain_model(name: str, words: Iterable[str]) -> Explain:
    """An explanation of every error that reading into the type *name* can raise.

    *words* are names defined by the type (fields, aliases). Other keys of a record appear as ``*``.
    """
    known = frozenset(words)

    def explain(error: Exception) -> DecodeError:
        if isinstance(error, DecodeError):
            return error
        if isinstance(error, ValidationError):
            return _from_pydantic(error, name, known)
        if isinstance(error, RecursionError):
            return DecodeError("not read: it is nested too deeply")
        if isinstance(error, UnicodeDecodeError):  # as a cause it would hold the whole record
            return DecodeError(f"not valid JSON: {error.reason} at byte {error.start}")
        msgspec = sys.modules.get("msgspec")
        if msgspec is not None and isinstance(error, msgspec.DecodeError):
            return _from_msgspec(error, name, fits_json=isinstance(error, msgspec.ValidationError))
        refused = DecodeError(f"does not fit {name}: {type(error).__name__} while reading it")
        refused.__cause__ = error  # a validator of the user's failed
        return refused

    return explain


def words_of(schema: object) -> frozenset[str]:
    """Every string in a core schema of pydantic's: fields, aliases, tags."""
    found: set[str] = set()
    todo: list[object] = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            found.add(item)
        elif isinstance(item, Mapping):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            todo += item
    return frozenset(found)


def _from_pydantic(error: ValidationError, name: str, known: frozenset[str]) -> DecodeError:
    details = error.errors(include_url=False, include_input=False)
    if details[0]["type"] == "json_invalid" and not details[0]["loc"]:
        return DecodeError(details[0]["msg"].replace("Invalid JSON", "not valid JSON", 1))
    shown = [
        (tuple(at if isinstance(at, int) or at in known else "*" for at in detail["loc"]), _message(detail))
        for detail in details[:_SHOWN]
    ]
    text = "; ".join(f"{'.'.join(map(str, place))}: {message}" if place else message for place, message in shown)
    more = f" (and {len(details) - _SHOWN} more)" if len(details) > _SHOWN else ""
    refused = DecodeError(f"does not fit {name}: {text}{more}")
    # A new cause, because the original prints its input.
    lines = [
        InitErrorDetails(type=PydanticCustomError(detail["type"], message), loc=place, input=None)
        for detail, (place, message) in zip(details, shown, strict=False)
    ]
    refused.__cause__ = ValidationError.from_exception_data(error.title, lines, "json", hide_input=True)
    return refused


def _message(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "union_tag_invalid":
        return f"Input tag does not match any of the expected tags: {context['expected_tags']}"
    if kind not in _PYDANTIC_TYPES:
        return f"Rejected by a validator ({kind})"
    if _FROM_THE_RECORD & context.keys():
        return re.split("[,:]", detail["msg"], maxsplit=1)[0]  # "Value error, ...": the rest may quote the record
    return detail["msg"]


def _from_msgspec(error: Any, name: str, *, fits_json: bool) -> DecodeError:
    text = str(error)
    if not fits_json:
        return DecodeError(f"not valid JSON: {text}")
    if not _MSGSPEC_SAFE.match(text):
        path = _MSGSPEC_PATH.search(text)
        text = "Rejected by a validator" + (f" - at `{path[1]}`" if path else "")
    refused = DecodeError(f"does not fit {name}: {text}")
    refused.__cause__ = type(error)(text)
    return refused
