"""Says why an application could not start: who raised what, and where in the user's code."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

from reactive_kafka.errors import describe
from reactive_kafka.handlers.signature import RAISED_BY
from reactive_kafka.observe.events import SafeCaller
from reactive_kafka.observe.log_setup import LOGGER, logs_as_text

_MACHINERY = (
    "reactive_kafka",
    "asyncio",
    "anyio",
    "concurrent",
    "contextlib",
    "threading",
    "uvloop",
)
"""Packages that call the functions of an application."""


def tell_failed_start(error: Exception) -> bool:
    """Say which function of the application has raised *error*, with only the frames of its code.

    It is written to stderr if the log goes there as text, otherwise it is a record of the log.

    Returns:
        False if no function of the application has raised the error. Nothing was said then.
    """
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(RAISED_BY)]
    if not notes:
        return False
    who = notes[0].removeprefix(RAISED_BY).removesuffix(", which is made at the start")
    text = f"{who} raised {describe(error)}"
    own = error.with_traceback(_own_frames(error.__traceback__))
    if logs_as_text():
        print(f"Error: {text}\n{''.join(traceback.format_exception(own))}", end="", file=sys.stderr)
    else:
        SafeCaller().call(lambda: LOGGER.error("%s", text, exc_info=own))
    return True


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that lead to the application's code."""
    while frames is not None and _is_machinery(frames):
        frames = frames.tb_next
    return frames


def _is_machinery(frames: TracebackType) -> bool:
    module = frames.tb_frame.f_globals.get("__name__", "")
    return isinstance(module, str) and module.partition(".")[0] in _MACHINERY
