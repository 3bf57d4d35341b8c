"""States to text and back: as JSON, through a model of the user, or by a codec of the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ConfigError, DecodeError, EncodeError
from reactive_kafka.formats.encoders import write_json
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.payload_type import payload_type_of
from reactive_kafka.formats.user_objects import check_is_plain, load_object


class StateCodec(NamedTuple):
    """The two directions of one channel's states."""

    # Raises EncodeError only.
    encode: Callable[[Any], str]
    # Raises DecodeError only.
    decode: Callable[[str], Any]


def codec_of(state: str | None) -> StateCodec:
    """Return the codec that ``checkpoint.state`` of a channel names; None means plain JSON.

    ``module:Model`` is a model that states are validated against, in both directions.
    ``module:codec`` is an object, or a class to make one of, with the methods ``encode``
    (state -> str) and ``decode`` (str -> state).

    Raises:
        FormatError: The name leads to neither.
    """
    if state is None:
        return _model_codec(Any)
    target = load_object(state)
    if all(callable(getattr(target, method, None)) for method in ("encode", "decode")):
        return _custom_codec(state, _users_codec(target))
    if not inspect.isclass(target):
        kind = type(target).__name__
        raise FormatError(
            f"expected a model, or an object with the methods encode and decode, not {kind}"
        )
    return _model_codec(target)


def codec_for(settings: IncomingSettings) -> StateCodec | None:
    """Return the codec of a channel's states, or None if the channel has no store."""
    if settings.checkpoint is None:
        return None
    try:
        return codec_of(settings.checkpoint.state)
    except FormatError as error:
        raise ConfigError(
            f"{settings.place('checkpoint.state', settings.checkpoint.state)}: {error}"
        ) from error


def _to_json(state: object) -> str:
    data = write_json(state)
    return "null" if data is None else data.decode()


def _model_codec(target: Any) -> StateCodec:
    # Imported here because it imports pydantic, which most applications do not need.
    from reactive_kafka.formats.models import model_for

    model = model_for(payload_type_of(target))

    # A state of the model was read back.
    is_proven = False

    def encode(state: object) -> str:
        nonlocal is_proven
        try:
            text = _to_json(model.from_object(state))
        except EncodeError:
            raise
        except Exception as error:
            # The model's validators are the user's and may raise anything.
            reason = model.explain(error)
            raise EncodeError(str(reason)) from reason.__cause__
        # A model may leave out a field that it needs, and writes NaN as null. Such a state would be
        # stored, and every record after a restart would fail.
        if target is not Any and (not is_proven or "null" in text):
            try:
                decode(text)
            except DecodeError as error:
                raise EncodeError(f"it could not be read back: {error}") from error.__cause__
            is_proven = True
        return text

    read = model.from_json()

    def decode(text: str) -> object:
        try:
            return read(text.encode())
        except Exception as error:
            # The validators may raise anything here, too.
            reason = model.explain(error)
            raise reason from reason.__cause__

    return StateCodec(encode, decode)


def _users_codec(target: Any) -> Any:
    """Return the user's codec, which is *target*, or is made of it if it is a class."""
    codec = target
    if inspect.isclass(target):
        try:
            codec = target()
        except Exception as error:
            # The user's code may raise anything; start-up ends with its error.
            raise FormatError(
                f"called without arguments, it raised {type(error).__name__}: {error}"
            ) from error
    check_is_plain(codec.encode)
    check_is_plain(codec.decode)
    return codec


def _custom_codec(path: str, codec: Any) -> StateCodec:
    def encode(state: object) -> str:
        try:
            text = codec.encode(state)
        except Exception as error:
            # The codec is the user's and may raise anything.
            raise EncodeError(f"{path} raised {type(error).__name__}") from error
        if not isinstance(text, str):
            raise EncodeError(f"{path}: encode must return str, and returned {type(text).__name__}")
        if "\0" in text:
            raise EncodeError(
                f"{path}: encode returned text with a NUL in it, which databases do not take"
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise EncodeError(
                f"{path}: encode returned text with a lone surrogate in it, which is no UTF-8"
            )
        return text

    def decode(text: str) -> object:
        try:
            return codec.decode(text)
        except Exception as error:
            # The codec may raise anything here, too.
            raise DecodeError(f"{path} raised {type(error).__name__}") from error

    return StateCodec(encode, decode)
