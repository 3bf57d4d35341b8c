"""The one wrapper of every decoder: a tombstone is answered, an error becomes a DecodeError."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.wanted import Wanted

Decoder = Callable[[bytes | None], object]
Read = Callable[[bytes], object]
Explain = Callable[[Exception], DecodeError]


def tombstone_refusal(name: str) -> str:
    """What is said of a record without a value where a *name* is asked for."""
    return f"no value (a tombstone), and {name} takes none: annotate {name} | None to get None"


def guarded(read: Read, wanted: Wanted, explain: Explain) -> Decoder:
    """A decoder that calls *read*, and raises nothing but :class:`DecodeError`, SystemExit and KeyboardInterrupt.

    Args:
        read: Bytes -> value; may raise whatever it likes.
        wanted: Says whether a record without a value fits.
        explain: Makes the error for people. Its text never quotes the record; its ``__cause__``, if set, is kept.
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
            raise  # it asks for the end of the process, and says nothing of the record
        except Exception as error:  # whatever a user's validator or function raises says: this record does not fit
            refused = explain(error)
            raise refused from refused.__cause__
        except BaseException as error:  # and no less what is no Exception: a CancelledError is nobody's but its own
            raise DecodeError(f"decoding it raised {type(error).__name__}") from error

    return decode
