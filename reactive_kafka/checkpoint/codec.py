"""State to text and back: as JSON, through a model of the user's, or by a codec of the user's. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ConfigError, DecodeError, EncodeError
from reactive_kafka.formats.encoders import write_json
from reactive_kafka.formats.models import Model, model_for
from reactive_kafka.formats.names import FormatError, load_object
from reactive_kafka.formats.wanted import wanted


class Codec(NamedTuple):
    """State <-> text.

    Attributes:
        encode: State -> text; raises :class:`EncodeError` only.
        decode: Text -> state; raises :class:`DecodeError` only.
    """

    encode: Callable[[Any], str]
    decode: Callable[[str], Any]


def codec_of(state: str | None) -> Codec:
    """The codec that ``checkpoint.state`` of a channel asks for.

    Args:
        state: ``module:Model`` (a pydantic model, a dataclass, a TypedDict, a msgspec Struct: states are validated into
            it, both ways), or ``module:codec`` (an object, or a class that makes one, with the methods ``encode``,
            state -> str, and ``decode``, str -> state); None: JSON as it is.

    Raises:
        FormatError: It cannot be imported, or is neither.
    """
    if state is None:
        return _modelled(model_for(wanted(Any)))
    target = load_object(state)
    if all(callable(getattr(target, method, None)) for method in ("encode", "decode")):
        return _custom(state, target() if inspect.isclass(target) else target)
    if not inspect.isclass(target):
        kind = type(target).__name__
        raise FormatError(f"expected a model, or an object with the methods encode and decode, not {kind}")
    return _modelled(model_for(wanted(target)))


def codec_for(settings: IncomingSettings) -> Codec | None:
    """The codec of a channel's states; None if it has no store.

    Raises:
        ConfigError: What ``checkpoint.state`` names cannot be imported, or is no model and no codec.
    """
    if settings.checkpoint is None:
        return None
    try:
        return codec_of(settings.checkpoint.state)
    except FormatError as error:
        raise ConfigError(f"{settings.place('checkpoint.state', settings.checkpoint.state)}: {error}") from error


def _to_json(state: object) -> str:
    data = write_json(state)
    return "null" if data is None else data.decode()


def _modelled(model: Model) -> Codec:
    def encode(state: object) -> str:
        try:
            return _to_json(model.from_value(state))
        except EncodeError:
            raise
        except Exception as error:  # the model's validators are the user's and may raise anything
            reason = model.explain(error)
            raise EncodeError(str(reason)) from reason.__cause__

    def decode(text: str) -> object:
        try:
            return model.from_json(text.encode())
        except Exception as error:  # as above
            reason = model.explain(error)
            raise reason from reason.__cause__

    return Codec(encode, decode)


def _custom(path: str, codec: Any) -> Codec:
    def encode(state: object) -> str:
        try:
            text = codec.encode(state)
        except Exception as error:  # it is the user's and may raise anything
            raise EncodeError(f"{path} raised {type(error).__name__}") from error
        if not isinstance(text, str):
            raise EncodeError(f"{path}: encode must return str, and returned {type(text).__name__}")
        if "\0" in text:
            raise EncodeError(f"{path}: encode returned text with a NUL in it, which databases do not take")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise EncodeError(f"{path}: encode returned text with a lone surrogate in it, which is no UTF-8")
        return text

    def decode(text: str) -> object:
        try:
            return codec.decode(text)
        except Exception as error:  # as above
            raise DecodeError(f"{path} raised {type(error).__name__}") from error

    return Codec(encode, decode)
