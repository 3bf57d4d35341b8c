"""Compiles readers of types at start-up, by msgspec for its structs and by pydantic for the rest.

If msgspec is installed it also reads those types that it reads exactly as pydantic does, in half
the time: :mod:`.quick_json`. Errors quote nothing of the record: no value, and no key that only the
record has.

This module is imported with the first type that needs it. Pydantic is a quarter of what an
application imports, and one whose handlers take bytes or text does not need it.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

# Installed with pydantic, which depends on it.
import typing_extensions
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, SchemaError
from pydantic_core.core_schema import ErrorType

from reactive_kafka.errors import DecodeError, describe
from reactive_kafka.formats.exact_decimals import exactly
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder, Explain, Read, guarded
from reactive_kafka.formats.like_json import reader_like_json
from reactive_kafka.formats.payload_type import PayloadType, has_struct
from reactive_kafka.formats.quick_json import parsed, quick_reader, quickly, struct_reader

# So many problems are named in the text. The others are counted.
_SHOWN = 3
_PYDANTIC_TYPES = frozenset(typing.get_args(ErrorType))
# Placeholders of pydantic's messages that quote what was read.
_QUOTING_PLACEHOLDERS = frozenset({"error", "encoding_error", "tag", "tz_actual"})
# Messages of msgspec that begin like this quote nothing.
_MSGSPEC_SAFE = re.compile(
    r"Expected |Object missing required field |Integer value out of range|Number out of range"
)
_MSGSPEC_PATH = re.compile(r" - at `(\$[^`]*)`$")
_ANYTHING = (Any, object)
# The core schema of pydantic for Any.
_ANY = {"type": "any"}
# Qualifier of a TypedDict's field -> whether the field is required.
_QUALIFIERS: dict[Any, bool] = {
    **dict.fromkeys((typing.Required, typing_extensions.Required), True),
    **dict.fromkeys((typing.NotRequired, typing_extensions.NotRequired), False),
}
_PLAIN_CLASS = re.compile(r"Unable to generate pydantic-core schema for <class '(.+?)'>")
_READABLE = (
    "make it a dataclass, TypedDict, pydantic model or msgspec.Struct, or name a function that "
    "reads it in value_deserializer"
)
_JSON_NAMES = {dict: "an object", list: "an array"}


def explain_model(name: str, words: Iterable[str]) -> Explain:
    """Return what explains every error of reading into a type.

    Args:
        name: The name of the type.
        words: The keys that the type itself has. Any other key appears as ``*``, because the record
            may be its only source.
    """
    known = frozenset(words)

    def explain(error: Exception) -> DecodeError:
        if isinstance(error, DecodeError):
            return error
        if isinstance(error, ValidationError):
            return _from_pydantic(error, name, known)
        if isinstance(error, RecursionError):
            return DecodeError("not read: it is nested too deeply")
        # It does not become the cause, because it holds the whole record.
        if isinstance(error, UnicodeDecodeError):
            return DecodeError(f"not valid JSON: {error.reason} at byte {error.start}")
        msgspec = sys.modules.get("msgspec")
        if msgspec is not None and isinstance(error, msgspec.DecodeError):
            return _from_msgspec(error, name)
        refused = DecodeError(f"does not fit {name}: {type(error).__name__} while reading it")
        # A validator of the user has failed.
        refused.__cause__ = error
        return refused

    return explain


def words_of(schema: object) -> frozenset[str]:
    """Return every string in a core schema of pydantic: fields, aliases, tags."""
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
    details = error.errors(include_url=False, include_input=True)
    if details[0]["type"] == "json_invalid" and not details[0]["loc"]:
        return DecodeError(details[0]["msg"].replace("Invalid JSON", "not valid JSON", 1))
    texts = []
    safe_details = []
    for detail in details[:_SHOWN]:
        message = _message(detail)
        path = tuple(key if isinstance(key, int) or key in known else "*" for key in detail["loc"])
        texts.append(f"{'.'.join(map(str, path))}: {message}" if path else message)
        safe_details.append(
            InitErrorDetails(
                type=PydanticCustomError(detail["type"], message), loc=path, input=None
            )
        )
    more = f" (and {len(details) - _SHOWN} more)" if len(details) > _SHOWN else ""
    refused = DecodeError(f"does not fit {name}: {'; '.join(texts)}{more}")
    # A new error is the cause, because the original prints its input.
    refused.__cause__ = ValidationError.from_exception_data(
        error.title, safe_details, "json", hide_input=True
    )
    return refused


def _message(detail: ErrorDetails) -> str:
    """Return the message of a problem, without what may quote the record."""
    kind = detail["type"]
    message = detail["msg"]
    context = detail.get("ctx", {})
    if kind == "union_tag_invalid":
        return f"Input tag does not match any of the expected tags: {context['expected_tags']}"
    if kind not in _PYDANTIC_TYPES:
        # A validator of the user has made up this kind.
        if _quotes(message, detail["input"]):
            return f"Rejected by a validator ({kind})"
        return message
    if kind in ("value_error", "assertion_error") and not _quotes(message, detail["input"]):
        return message
    if _QUOTING_PLACEHOLDERS & context.keys():
        # In "Value error, ..." the rest may quote the record.
        return re.split("[,:]", message, maxsplit=1)[0]
    return message


def _quotes(message: str, value: Any) -> bool:
    """Return whether a validator's message contains a part of the value that it has refused."""
    if isinstance(value, Mapping):
        return any(_quotes(message, part) for part in (*value.keys(), *value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(_quotes(message, part) for part in value)
    if value is None or isinstance(value, bool) or value == "":
        return False
    if not isinstance(value, str | int | float):
        # The validator of a whole model gets the object.
        fields = getattr(value, "__dict__", None)
        if isinstance(fields, dict):
            return _quotes(message, fields)
        return str(value) in message
    return re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", message) is not None


def _from_msgspec(error: Any, name: str) -> DecodeError:
    text = str(error)
    if not _MSGSPEC_SAFE.match(text):
        path = _MSGSPEC_PATH.search(text)
        where = f" - at `{path[1]}`" if path else ""
        if text.startswith("Invalid enum value "):
            text = f"The value is none of those that are allowed{where}"
        elif error.__cause__ is None and text.startswith("Invalid value "):
            text = f"The tag is none of those of the expected structs{where}"
        elif error.__cause__ is None:
            text = f"Rejected by a validator{where}"
    refused = DecodeError(f"does not fit {name}: {text}")
    refused.__cause__ = type(error)(text)
    return refused


class Model(NamedTuple):
    """The readers of one type.

    Attributes:
        quick: Reads JSON by msgspec; None: msgspec does not read the type exactly as pydantic does.
        careful: Reads JSON by pydantic.
        from_value: Reads what another format yields, with the meaning that it has in JSON.
        from_object: Reads an object of the application.
        explain: Explains what these raise.
    """

    quick: Read | None
    careful: Read
    from_value: Callable[[Any], object]
    from_object: Callable[[Any], object]
    explain: Explain

    def from_json(self) -> Read:
        """Return the reader of JSON. It raises anything."""
        return quickly(self.quick, self.careful)

    def decoder(self, payload_type: PayloadType) -> Decoder:
        """Return the decoder of JSON. A quick read does not cost the call of :func:`guarded`."""
        return quickly(self.quick, guarded(self.careful, payload_type, self.explain))


def model_for(payload_type: PayloadType) -> Model:
    """Compile the readers of a type.

    Raises:
        FormatError: Neither pydantic nor msgspec can read it.
    """
    if not payload_type.is_constrained and payload_type.base in _ANYTHING:
        explain = explain_model(payload_type.name, ())
        return Model(quick_reader(Any, _ANY), parsed, _unchanged, _unchanged, explain)
    if has_struct(payload_type.annotation):
        return _msgspec_model(payload_type)
    return _pydantic_model(payload_type)


def _pydantic_model(payload_type: PayloadType) -> Model:
    annotation = payload_type.annotation
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(portable(annotation))
        validator = adapter.validator
        schema = adapter.core_schema
        words = words_of(schema)
    except (
        PydanticUserError,
        PydanticSchemaGenerationError,
        PydanticUndefinedAnnotation,
        SchemaError,
    ) as error:
        reason = str(error).partition("\n")[0]
        plain_class = _PLAIN_CLASS.match(reason)
        if plain_class:
            reason = f"nothing says what {plain_class[1]} consists of; {_READABLE}"
        raise FormatError(f"{payload_type.name} cannot be read from JSON: {reason}") from error
    except Exception as error:
        # An annotation is the user's code, and may have more of that inside. It may raise anything.
        reason = describe(error)
        raise FormatError(f"{payload_type.name} cannot be read from JSON: {reason}") from error
    careful: Read = validator.validate_json
    if annotation in _JSON_NAMES:
        # Twice as fast as a validator that has nothing to check.
        careful = _plain_reader(annotation)
    careful = exactly(careful, schema)
    quick = quick_reader(annotation, schema)
    from_object = validator.validate_python
    from_value = reader_like_json(schema) or from_object
    return Model(quick, careful, from_value, from_object, explain_model(payload_type.name, words))


def _unchanged(value: Any) -> Any:
    return value


def _msgspec_model(payload_type: PayloadType) -> Model:
    import msgspec

    try:
        decoder = msgspec.json.Decoder(payload_type.annotation)
    except (TypeError, NameError) as error:
        raise FormatError(f"{payload_type.name} cannot be read from JSON: {error}") from error
    except Exception as error:
        # It evaluates annotations of the user's class.
        reason = describe(error)
        raise FormatError(f"{payload_type.name} cannot be read from JSON: {reason}") from error
    convert = partial(msgspec.convert, type=payload_type.annotation)
    careful = struct_reader(decoder.decode, partial(convert, str_keys=True))
    return Model(decoder.decode, careful, convert, convert, explain_model(payload_type.name, ()))


def _plain_reader(kind: type[dict[Any, Any]] | type[list[Any]]) -> Read:
    """Return what reads JSON into a dict or a list, whatever is in it."""

    def read(value: bytes) -> object:
        document = parsed(value)
        if type(document) is not kind:
            raise DecodeError(f"does not fit {kind.__name__}: the JSON is not {_JSON_NAMES[kind]}")
        return document

    return read


def portable(annotation: Any) -> Any:
    """Return *annotation* with TypedDicts of typing_extensions in place of those of ``typing``.

    Pydantic rejects those of ``typing`` before Python 3.12.
    """
    if sys.version_info >= (3, 12):
        return annotation
    return _replaced(annotation, {})


def _replaced(annotation: Any, made: dict[Any, Any]) -> Any:
    """Return *annotation* with its TypedDicts replaced. *made* has those that are done."""
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _remade(annotation, made)
    arguments = typing.get_args(annotation)
    new = tuple(_replaced(argument, made) for argument in arguments)
    if all(after is before for after, before in zip(new, arguments, strict=True)):
        return annotation
    if typing.get_origin(annotation) is typing.Annotated:
        return typing.Annotated[new[0], *annotation.__metadata__]
    # The generics of typing, such as List[...] and Optional[...].
    if hasattr(annotation, "copy_with"):
        return annotation.copy_with(new)
    origin = typing.get_origin(annotation)
    if origin is types.UnionType:
        return typing.Union[new]  # noqa: UP007
    return origin[new]


def _remade(typed_dict: Any, made: dict[Any, Any]) -> Any:
    if typed_dict in made:
        return made[typed_dict]
    # Inside of itself a recursive one is not replaced, and pydantic reports it.
    made[typed_dict] = typed_dict
    hints = typing.get_type_hints(typed_dict, include_extras=True)
    fields = {
        name: _field(hint, name in typed_dict.__required_keys__, made)
        for name, hint in hints.items()
    }
    functional: Any = typing_extensions.TypedDict
    made[typed_dict] = functional(typed_dict.__name__, fields)
    made[typed_dict].__module__ = typed_dict.__module__
    made[typed_dict].__doc__ = typed_dict.__doc__
    return made[typed_dict]


def _field(hint: Any, required: bool, made: dict[Any, Any]) -> Any:
    qualifier = typing.get_origin(hint)
    # __required_keys__ misses qualifiers in string annotations.
    if qualifier in _QUALIFIERS:
        required = _QUALIFIERS[qualifier]
        hint = typing.get_args(hint)[0]
    inner = _replaced(hint, made)
    return typing_extensions.Required[inner] if required else typing_extensions.NotRequired[inner]
