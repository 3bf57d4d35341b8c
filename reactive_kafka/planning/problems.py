"""Collects what is wrong with one part of a plan, so that start-up can report all of it at once. No
I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from reactive_kafka.errors import ConfigError
from reactive_kafka.formats import FormatError

T = TypeVar("T")


class ProblemReport:
    """The problems that were found so far, one line each.

    A function that makes a plan creates a report, adds what is wrong, continues as far as possible,
    and ends with :meth:`raise_if_any`. Its caller takes the error apart again with :meth:`attempt`.
    """

    def __init__(self, problems: Iterable[str] = ()) -> None:
        self._problems = list(problems)

    def __bool__(self) -> bool:
        return bool(self._problems)

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems in the order in which they were noted, each once."""
        return tuple(dict.fromkeys(self._problems))

    def add(self, *problems: str) -> None:
        """Note problems, in this order."""
        self._problems += problems

    def attempt(self, who: str, make: Callable[..., T], *arguments: Any) -> T | None:
        """Return what *make* returns, or None after noting why it cannot.

        Args:
            who: Begins the line of a FormatError, which does not say what it is about. The
                problems of a ConfigError are whole lines, and are taken as they are.
        """
        try:
            return make(*arguments)
        except FormatError as error:
            self.add(f"{who}: {error}")
        except ConfigError as error:
            self.add(*error.problems)
        return None

    def raise_if_any(self) -> None:
        """Raise a ConfigError with all problems, each once. Returns if there are none."""
        if self._problems:
            raise ConfigError(*self.problems)
