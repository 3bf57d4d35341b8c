"""The wrapper of every decoder: handles tombstones, turns errors into DecodeError."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.wanted import Wanted

Decoder = Callable[[bytes | None], object]
Read = Callable[[bytes], object]
Explain = Callable[[Exception], DecodeError]


def tombstone_refusal(name: str) -> str:
    """Why a record without a value does not fit a handler that asks for *name*."""
    return f"no value (a tombstone), but the handler asks for {name}: annotate {name} | None to get None"


def guarded(read: Read, wanted: Wanted, explain: Explain) -> Decoder:
    """A decoder that calls *read* and raises only :class:`DecodeError`, SystemExit and KeyboardInterrupt.

    Args:
        read: Bytes -> value; may raise anything.
        wanted: Decides whether a record without a value fits.
        explain: Makes the DecodeError. Its text never quotes the record; its ``__cause__``, if set, is kept.
    """
    accepts_none, refusal = wanted.accepts_none, tombstone_refusal(wanted.name)

    def decode(value: bytes | None) -> object:
        if value is None:
            if accepts_none:
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
