"""The states of one partition, which of them belongs to which position, and their text. No I/O.

A state takes effect with its record's ack. With a position goes the state that the highest record
before it has set, so a state is never ahead of its position. All states are encoded text; None is
no state.
"""

from __future__ import annotations

import inspect
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ConfigError, DecodeError, EncodeError
from reactive_kafka.formats.encoders import write_json
from reactive_kafka.formats.names import FormatError, load_object
from reactive_kafka.formats.wanted import wanted


class _Set(NamedTuple):
    # The record's number in its tracker.
    arrival: int
    text: str | None


class States:
    """What the records of one partition have set since its row was claimed."""

    def __init__(self, base: str | None) -> None:
        # The state of the row, or where reading restarts before that.
        self._base = base
        # Of records that have set something, ascending.
        self._offsets: list[int] = []
        self._sets: dict[int, _Set] = {}
        self._batch: range = range(0)
        # What records before it have set counts: they were settled before reading restarted.
        self._start = -1

    def restart(self, position: int) -> None:
        """Reading starts elsewhere. All records before *position* are settled; what others have set
        is void.
        """
        # What is kept serves a second seek, which may lead back behind the first but not behind
        # what the store has.
        self._forget(slice(bisect_left(self._offsets, position), None))
        self._batch = range(0)
        self._start = position

    def begin(self, offsets: Sequence[int]) -> None:
        """A handler is called with these records, ascending: what an earlier call has set for them
        is void.

        Each record of a batch sees what those before it in the batch have set.
        """
        for offset in offsets:
            self.drop(offset)
        self._batch = range(offsets[0], offsets[-1] + 1)

    def set(self, offset: int, index: int, text: str | None) -> None:
        """Set the state from the record at *offset* on."""
        if offset not in self._sets:
            insort(self._offsets, offset)
        self._sets[offset] = _Set(index, text)

    def drop(self, offset: int) -> None:
        """Forget what a record has set: it was nacked, or is handled again."""
        if self._sets.pop(offset, None) is not None:
            del self._offsets[bisect_left(self._offsets, offset)]

    def get(self, offset: int, is_open: Callable[[int], bool]) -> str | None:
        """The state that the record at *offset* sees: its own, else that of the nearest record
        before it that counts.

        *is_open* tells by arrival number which records have no verdict yet; nacked ones were
        dropped.
        """
        if offset in self._sets:
            return self._sets[offset].text
        for at in range(bisect_left(self._offsets, offset) - 1, -1, -1):
            before = self._offsets[at]
            is_before_in_batch = offset in self._batch and before in self._batch
            if (
                before < self._start
                or is_before_in_batch
                or not is_open(self._sets[before].arrival)
            ):
                return self._sets[before].text
        return self._base

    def at(self, position: int) -> str | None:
        """The state to store with a position, before which every record is settled."""
        at = bisect_left(self._offsets, position) - 1
        return self._base if at < 0 else self._sets[self._offsets[at]].text

    def stored(self, position: int) -> None:
        """The store has *position*: what was set before it becomes the base."""
        self.found(position, self.at(position))

    def found(self, position: int, text: str | None) -> None:
        """The store has *position* with this state."""
        self._base = text
        self._forget(slice(bisect_left(self._offsets, position)))

    def _forget(self, which: slice) -> None:
        for offset in self._offsets[which]:
            del self._sets[offset]
        del self._offsets[which]


class Codec(NamedTuple):
    """State to text and back: as JSON, through a model of the user's, or by a codec of the
    user's.
    """

    # Raises EncodeError only.
    encode: Callable[[Any], str]
    # Raises DecodeError only.
    decode: Callable[[str], Any]


def codec_of(state: str | None) -> Codec:
    """The codec that ``checkpoint.state`` of a channel asks for; None: JSON as it is.

    ``module:Model`` is a model that states are validated into, both ways. ``module:codec`` is an
    object, or a class that makes one, with the methods ``encode``, state -> str, and ``decode``,
    str -> state. Raises FormatError.
    """
    if state is None:
        return _modelled(Any)
    target = load_object(state)
    if all(callable(getattr(target, method, None)) for method in ("encode", "decode")):
        return _custom(state, target() if inspect.isclass(target) else target)
    if not inspect.isclass(target):
        kind = type(target).__name__
        raise FormatError(
            f"expected a model, or an object with the methods encode and decode, not {kind}"
        )
    return _modelled(target)


def codec_for(settings: IncomingSettings) -> Codec | None:
    """The codec of a channel's states; None if it has no store."""
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


def _modelled(target: Any) -> Codec:
    # Which imports pydantic.
    from reactive_kafka.formats.models import model_for

    model = model_for(wanted(target))

    def encode(state: object) -> str:
        try:
            return _to_json(model.from_object(state))
        except EncodeError:
            raise
        except Exception as error:
            # The model's validators are the user's and may raise anything.
            reason = model.explain(error)
            raise EncodeError(str(reason)) from reason.__cause__

    read = model.from_json()

    def decode(text: str) -> object:
        try:
            return read(text.encode())
        except Exception as error:
            # As above.
            reason = model.explain(error)
            raise reason from reason.__cause__

    return Codec(encode, decode)


def _custom(path: str, codec: Any) -> Codec:
    def encode(state: object) -> str:
        try:
            text = codec.encode(state)
        except Exception as error:
            # It is the user's and may raise anything.
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
            # As above.
            raise DecodeError(f"{path} raised {type(error).__name__}") from error

    return Codec(encode, decode)
