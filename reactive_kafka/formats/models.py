"""Readers of types, compiled at start-up: by msgspec for its structs, by pydantic for everything
else.

Where msgspec is installed it also reads what it reads as pydantic does, in half the time:
:mod:`.quick_json`. Why bytes do not fit a type is told without quoting the record: no value, and no
key that only the record has. :func:`.guarding.guarded` is around every decoder. It is imported with
the first type that needs it: pydantic is a quarter of what an application imports, and one whose
handlers take bytes or text needs none of it.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

# Pydantic depends on it.
import typing_extensions
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, SchemaError
from pydantic_core.core_schema import ErrorType

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.exact_decimals import exactly
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder, Explain, Read, guarded
from reactive_kafka.formats.like_json import reader_like_json
from reactive_kafka.formats.payload_type import PayloadType, has_struct
from reactive_kafka.formats.quick_json import parsed, quick_reader, quickly, struct_reader

# Problems named in the text; the others are counted.
_SHOWN = 3
_PYDANTIC_TYPES = frozenset(typing.get_args(ErrorType))
# Placeholders that quote what was read.
_FROM_THE_RECORD = frozenset({"error", "encoding_error", "tag", "tz_actual"})
_MSGSPEC_SAFE = re.compile(
    r"Expected |Object missing required field |Integer value out of range|Number out of range"
)
_MSGSPEC_PATH = re.compile(r" - at `(\$[^`]*)`$")
_ANYTHING = (Any, object)
# Its core schema.
_ANY = {"type": "any"}
_QUALIFIERS: dict[Any, bool] = {
    **dict.fromkeys((typing.Required, typing_extensions.Required), True),
    **dict.fromkeys((typing.NotRequired, typing_extensions.NotRequired), False),
}
_PLAIN_CLASS = re.compile(r"Unable to generate pydantic-core schema for <class '(.+?)'>")
_KNOWN = (
    "make it a dataclass, TypedDict, pydantic model or msgspec.Struct, or name a function that reads it in "
    "value_deserializer"
)
_JSON_NAMES = {dict: "an object", list: "an array"}


def explain_model(name: str, words: Iterable[str]) -> Explain:
    """An explanation of every error of reading into the type *name*. Keys that are not its *words*
    appear as ``*``.
    """
    known = frozenset(words)

    def explain(error: Exception) -> DecodeError:
        if isinstance(error, DecodeError):
            return error
        if isinstance(error, ValidationError):
            return _from_pydantic(error, name, known)
        if isinstance(error, RecursionError):
            return DecodeError("not read: it is nested too deeply")
        # As a cause it would hold the whole record.
        if isinstance(error, UnicodeDecodeError):
            return DecodeError(f"not valid JSON: {error.reason} at byte {error.start}")
        msgspec = sys.modules.get("msgspec")
        if msgspec is not None and isinstance(error, msgspec.DecodeError):
            return _from_msgspec(error, name)
        refused = DecodeError(f"does not fit {name}: {type(error).__name__} while reading it")
        # A validator of the user's failed.
        refused.__cause__ = error
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
    details = error.errors(include_url=False, include_input=True)
    if details[0]["type"] == "json_invalid" and not details[0]["loc"]:
        return DecodeError(details[0]["msg"].replace("Invalid JSON", "not valid JSON", 1))
    shown = [
        (
            tuple(at if isinstance(at, int) or at in known else "*" for at in detail["loc"]),
            _message(detail),
        )
        for detail in details[:_SHOWN]
    ]
    text = "; ".join(
        f"{'.'.join(map(str, place))}: {message}" if place else message for place, message in shown
    )
    more = f" (and {len(details) - _SHOWN} more)" if len(details) > _SHOWN else ""
    refused = DecodeError(f"does not fit {name}: {text}{more}")
    # A new cause, because the original prints its input.
    lines = [
        InitErrorDetails(type=PydanticCustomError(detail["type"], message), loc=place, input=None)
        for detail, (place, message) in zip(details, shown, strict=False)
    ]
    refused.__cause__ = ValidationError.from_exception_data(
        error.title, lines, "json", hide_input=True
    )
    return refused


def _message(detail: ErrorDetails) -> str:
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == "union_tag_invalid":
        return f"Input tag does not match any of the expected tags: {context['expected_tags']}"
    if kind not in _PYDANTIC_TYPES:
        is_own = not _quotes(detail["msg"], detail["input"])
        return detail["msg"] if is_own else f"Rejected by a validator ({kind})"
    if kind in ("value_error", "assertion_error") and not _quotes(detail["msg"], detail["input"]):
        return detail["msg"]
    if _FROM_THE_RECORD & context.keys():
        # "Value error, ...": the rest may quote the record.
        return re.split("[,:]", detail["msg"], maxsplit=1)[0]
    return detail["msg"]


def _quotes(message: str, value: Any) -> bool:
    """Whether the message of a validator has a part of the value that it has refused."""
    if isinstance(value, Mapping):
        return any(_quotes(message, part) for part in (*value.keys(), *value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(_quotes(message, part) for part in value)
    if value is None or isinstance(value, bool) or value == "":
        return False
    if not isinstance(value, str | int | float):
        # A model that is validated as a whole: pydantic gives the object.
        fields = getattr(value, "__dict__", None)
        return _quotes(message, fields) if isinstance(fields, dict) else str(value) in message
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
    """How a type is read."""

    # From JSON, where it can be read so.
    quick: Read | None
    # From JSON.
    careful: Read
    # From what another format yields, with the meaning that it has in JSON.
    from_value: Callable[[Any], object]
    # From an object of the application's own.
    from_object: Callable[[Any], object]
    # What these raise.
    explain: Explain

    def from_json(self) -> Read:
        return quickly(self.quick, self.careful)

    def decoder(self, wanted: PayloadType) -> Decoder:
        """From JSON; a record that is read quickly costs no call of :func:`guarded`'s."""
        return quickly(self.quick, guarded(self.careful, wanted, self.explain))


def model_for(wanted: PayloadType) -> Model:
    """Compile the reader of *wanted*; a FormatError if neither pydantic nor msgspec can read it."""
    if not wanted.constrained and wanted.base in _ANYTHING:
        return Model(
            quick_reader(Any, _ANY), parsed, _as_it_is, _as_it_is, explain_model(wanted.name, ())
        )
    return _msgspec_model(wanted) if has_struct(wanted.annotation) else _pydantic_model(wanted)


def _pydantic_model(wanted: PayloadType) -> Model:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(portable(wanted.annotation))
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
        if plain := _PLAIN_CLASS.match(reason):
            reason = f"nothing says what {plain[1]} consists of; {_KNOWN}"
        raise FormatError(f"{wanted.name} cannot be read from JSON: {reason}") from error
    # Twice as fast as a validator with nothing to check.
    careful = (
        _plain_reader(wanted.annotation)
        if wanted.annotation in _JSON_NAMES
        else validator.validate_json
    )
    careful = exactly(careful, schema)
    quick = quick_reader(wanted.annotation, schema)
    from_object = validator.validate_python
    from_value = reader_like_json(schema) or from_object
    return Model(quick, careful, from_value, from_object, explain_model(wanted.name, words))


def _as_it_is(value: Any) -> Any:
    return value


def _msgspec_model(wanted: PayloadType) -> Model:
    import msgspec

    try:
        decoder = msgspec.json.Decoder(wanted.annotation)
    except (TypeError, NameError) as error:
        raise FormatError(f"{wanted.name} cannot be read from JSON: {error}") from error
    convert = partial(msgspec.convert, type=wanted.annotation)
    careful = struct_reader(decoder.decode, partial(convert, str_keys=True))
    return Model(decoder.decode, careful, convert, convert, explain_model(wanted.name, ()))


def _plain_reader(kind: type[dict[Any, Any]] | type[list[Any]]) -> Read:
    def read(value: bytes) -> object:
        document = parsed(value)
        if type(document) is not kind:
            raise DecodeError(f"does not fit {kind.__name__}: the JSON is not {_JSON_NAMES[kind]}")
        return document

    return read


def portable(annotation: Any) -> Any:
    """*annotation* with its TypedDicts of ``typing``, which pydantic rejects before 3.12, as
    typing_extensions'.
    """
    return annotation if sys.version_info >= (3, 12) else _replaced(annotation, {})


def _replaced(annotation: Any, made: dict[Any, Any]) -> Any:
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _remade(annotation, made)
    arguments = typing.get_args(annotation)
    new = tuple(_replaced(argument, made) for argument in arguments)
    if all(after is before for after, before in zip(new, arguments, strict=True)):
        return annotation
    if typing.get_origin(annotation) is typing.Annotated:
        return typing.Annotated[new[0], *annotation.__metadata__]
    # typing.List[...], Optional[...]
    if hasattr(annotation, "copy_with"):
        return annotation.copy_with(new)
    origin = typing.get_origin(annotation)
    return typing.Union[new] if origin is types.UnionType else origin[new]  # noqa: UP007


def _remade(typed_dict: Any, made: dict[Any, Any]) -> Any:
    if typed_dict in made:
        return made[typed_dict]
    # A recursive one keeps its inner self, which pydantic reports.
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
    said = typing.get_origin(hint)
    # __required_keys__ misses qualifiers in string annotations.
    if said in _QUALIFIERS:
        required = _QUALIFIERS[said]
        hint = typing.get_args(hint)[0]
    inner = _replaced(hint, made)
    return typing_extensions.Required[inner] if required else typing_extensions.NotRequired[inner]
