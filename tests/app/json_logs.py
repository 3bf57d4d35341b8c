"""Logging as ``run --log json`` sets it up, into memory."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reactive_kafka.delivery.current import fields_of_call
from reactive_kafka.observe.log_setup import NOISY_LIBRARIES, configure_logging


class JsonLines:
    """What is logged, with the fields of the record that a line is about."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    def of(self, message: str) -> list[dict[str, Any]]:
        """The fields of the lines with a message, without those that every line has."""
        common = ("time", "level", "logger", "message")
        found = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [
            {name: value for name, value in line.items() if name not in common}
            for line in found
            if line["message"] == message
        ]


@contextmanager
def logged_as_json() -> Iterator[JsonLines]:
    """Log as JSON until the block ends; then everything is as before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in NOISY_LIBRARIES}
    root.handlers.clear()
    stream = io.StringIO()
    configure_logging("json", stream=stream, about=fields_of_call)
    try:
        yield JsonLines(stream)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
