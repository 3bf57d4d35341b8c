"""What is around every decoder: whatever reading raises becomes a DecodeError that quotes nothing
of the record.
"""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.errors import DecodeError, SchemaAwayError
from reactive_kafka.formats.payload_type import PayloadType

Read = Callable[[bytes], object]
Decoder = Callable[[bytes | None], object]
Explain = Callable[[Exception], DecodeError]


def guarded(read: Read, wanted: PayloadType, explain: Explain) -> Decoder:
    """A decoder that calls *read* and raises only :class:`DecodeError`, SchemaAwayError, SystemExit
    and KeyboardInterrupt.

    The text of the DecodeError that *explain* makes never quotes the record; its ``__cause__``, if
    set, is kept.
    """
    refusal = wanted.tombstone_refusal

    def decode(value: bytes | None) -> object:
        if value is None:
            if refusal is None:
                return None
            raise DecodeError(refusal)
        try:
            return read(value)
        except (SystemExit, KeyboardInterrupt, SchemaAwayError):
            # That the process is to end, or a schema is still to come, is no statement about the
            # record.
            raise
        except Exception as error:
            # Whatever user code raises, it means that this record does not fit.
            refused = explain(error)
            raise refused from refused.__cause__
        except BaseException as error:
            # Nothing here awaits, so even a CancelledError is user code's own.
            raise DecodeError(f"decoding it raised {type(error).__name__}") from error

    return decode
