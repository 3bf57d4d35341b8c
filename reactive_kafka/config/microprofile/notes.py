"""What is gathered while a MicroProfile configuration is read: leaves of ours, problems, warnings.
Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.config.layers import Leaf, Origin
from reactive_kafka.config.microprofile.converters import other_protocols
from reactive_kafka.config.microprofile.property_values import Given
from reactive_kafka.config.scan import KeyPath
from reactive_kafka.config.secrets import MASK, is_secret, may_be_secret, shown
from reactive_kafka.errors import escaped

_ATTRIBUTE = re.compile(r'mp\.messaging\.\w+\.(?:"[^"]*"|[^.]*)\.(.+)', re.DOTALL)
_USER_AND_PASSWORD = "auth.user.info"


def place(given: Given, *, is_open: bool = True) -> str:
    """The property as errors show it, its value masked where its name is a secret's, or may be
    without *is_open*.
    """
    match = _ATTRIBUTE.fullmatch(given.name)
    # A channel may be called tokens.
    name = match[1] if match else given.name
    is_hidden = (
        is_secret(name)
        or name.endswith(_USER_AND_PASSWORD)
        or (not is_open and may_be_secret(name))
    )
    return f"{given.written} = {MASK if is_hidden else shown('', given.text)}"


@dataclass(slots=True)
class Notes:
    """Everything that the properties mean, in the order in which it was found."""

    leaves: list[Leaf] = field(default_factory=list)
    # Path of a leaf -> the property that it comes from.
    given: dict[KeyPath, Given] = field(default_factory=dict)
    # Where, at what, why.
    problems: list[tuple[Origin, str, str]] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)

    def set(self, path: KeyPath, value: Any, given: Given, problem: str | None = None) -> None:
        """What *given* says for a key of ours."""
        self.given[path] = given
        text = given.text if value is not None else None
        self.leaves.append(
            Leaf(path, value, given.origin, text, given.problem or problem, place(given))
        )

    def default(self, path: KeyPath, value: Any, origin: Origin) -> None:
        """What SmallRye takes where nothing was given, and we do not."""
        self.leaves.append(Leaf(path, value, origin))

    def wrong(self, given: Given, why: str, *, is_open: bool = True) -> None:
        """A property that cannot be what it is."""
        self.problems.append((given.origin, place(given, is_open=is_open), given.problem or why))

    def warn(self, given: Given, why: str, *, is_own: bool = False) -> None:
        """A property that says something in vain. Nothing shows the value of one that is the
        application's own.
        """
        where = given.written if is_own else place(given)
        self.warn_at(given.origin, where, why)

    def warn_at(self, origin: Origin, where: str, why: str) -> None:
        """Warn of something that is not a single property, in one line: line breaks in names are
        escaped.
        """
        self.warnings[escaped(f"{origin}: {where}: {why}")] = None

    def warn_of_protocols(self, given: Given, protocol: Given | None) -> None:
        """Warn of addresses that name another protocol than the one that counts."""
        counts = protocol.text if protocol is not None else "PLAINTEXT"
        if others := other_protocols(given.text, counts):
            why = f"{', '.join(others)} has no effect in an address: security.protocol says it, and is {counts}"
            self.warn(given, why)
