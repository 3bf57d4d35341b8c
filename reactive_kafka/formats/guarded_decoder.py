"""The wrapper of every decoder. It turns any error into a DecodeError that quotes no record."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.errors import DecodeError, SchemaAwayError
from reactive_kafka.formats.payload_type import PayloadType

Read = Callable[[bytes], object]
"""Reads bytes, and may raise anything."""
Decoder = Callable[[bytes | None], object]
"""Reads the value of a record, and raises what :func:`guarded` lists."""
Explain = Callable[[Exception], DecodeError]
"""Returns the DecodeError for an error of a reader."""


def guarded(read: Read, payload_type: PayloadType, explain: Explain) -> Decoder:
    """Return a decoder that calls *read*.

    It raises only :class:`DecodeError`, SchemaAwayError, SystemExit and KeyboardInterrupt.

    Args:
        read: Reads bytes. It may run code of the user, and raise anything.
        payload_type: What the handler asks for.
        explain: Returns the error to raise. Its text must not quote the record; its
            ``__cause__``, if it has one, is kept.
    """
    refusal = payload_type.tombstone_refusal

    def decode(value: bytes | None) -> object:
        if value is None:
            if refusal is None:
                return None
            raise DecodeError(refusal)
        try:
            return read(value)
        except (SystemExit, KeyboardInterrupt, SchemaAwayError):
            # These say nothing about the record: the process is to end, or a schema is missing.
            raise
        except Exception as error:
            # Any other error means that the record does not fit.
            refused = explain(error)
            raise refused from refused.__cause__
        except BaseException as error:
            # Nothing here awaits, so even a CancelledError comes from the user's code.
            raise DecodeError(f"decoding it raised {type(error).__name__}") from error

    return decode
