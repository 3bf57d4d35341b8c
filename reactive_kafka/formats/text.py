"""The formats ``string`` (UTF-8) and ``bytes``."""

from __future__ import annotations

from reactive_kafka.errors import DecodeError, EncodeError

read_text = bytes.decode  # strict UTF-8


def explain_text(error: Exception) -> DecodeError:
    """Where the text stops being UTF-8. The original error is no cause, because it holds the whole record."""
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"not UTF-8 text: {error.reason} at byte {error.start}")
    return DecodeError(f"not UTF-8 text: {type(error).__name__}")


def write_text(value: object) -> bytes | None:
    """A str as UTF-8.

    Raises:
        EncodeError: It is not a str, or holds a lone surrogate.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise EncodeError(f"the serializer 'string' takes str, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"UTF-8 cannot encode the text: {error.reason} at character {error.start}") from None


def write_bytes(value: object) -> bytes | None:
    """Bytes as they are; a bytearray or memoryview is copied.

    Raises:
        EncodeError: It is something else.
    """
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)  # the same object if it is bytes
    raise EncodeError(f"the serializer 'bytes' takes bytes, not {type(value).__name__}")
