"""A small terminal: what a user would see of the bytes that a program has written to one."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x00-\x1f\x7f]+)|(.)", re.DOTALL)


class Terminal:
    """Lines of text with a cursor; the screen has no end, so nothing scrolls away.

    It knows the sequences that draw in place (cursor up, erase) and colours. Any other control
    sequence is an error: a test must not pass because something was not understood.

    Args:
        columns: A longer line goes on in the next one, as in a real terminal.
    """

    def __init__(self, columns: int = 120) -> None:
        self._columns = columns
        self.lines = [""]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        """Show what a program writes; a line end of a pseudo terminal is ``\\r\\n``."""
        for match in _TOKEN.finditer(text):
            number, command, cr, lf, printed, other = match.groups()
            if command is not None:
                self._command(number, command)
            elif cr:
                self._column = 0
            elif lf:
                self._down()
            elif printed is not None:
                self._print(printed)
            else:
                raise AssertionError(f"unknown control character {other!r}")

    @property
    def shown(self) -> list[str]:
        """The lines down to the cursor's, without trailing spaces."""
        return [line.rstrip() for line in self.lines]

    def _command(self, number: str, command: str) -> None:
        if command == "m":
            return
        if command == "A":
            self._row = max(0, self._row - int(number or 1))
        elif command == "J" and number in ("", "0"):
            self.lines[self._row] = self.lines[self._row][: self._column]
            del self.lines[self._row + 1 :]
        else:
            raise AssertionError(f"unknown sequence ESC [ {number} {command}")

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")

    def _print(self, text: str) -> None:
        for char in text:
            if self._column == self._columns:
                self._column = 0
                self._down()
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + char + line[self._column + 1 :]
            self._column += 1
