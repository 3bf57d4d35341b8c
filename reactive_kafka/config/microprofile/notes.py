"""Collects what a MicroProfile configuration means: leaves of ours, problems, warnings. Pure."""

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
    """Return the property as errors show it, with its value masked if it is a secret.

    Without *is_open* a value is also masked if the name may be that of a misspelt secret.
    """
    match = _ATTRIBUTE.fullmatch(given.name)
    # Only the attribute counts, because a channel may be called "tokens".
    name = match[1] if match else given.name
    is_hidden = (
        is_secret(name)
        or name.endswith(_USER_AND_PASSWORD)
        or (not is_open and may_be_secret(name))
    )
    return f"{given.written} = {MASK if is_hidden else shown('', given.text)}"


@dataclass(slots=True)
class Notes:
    """What the properties mean, in the order in which it was found.

    Attributes:
        leaves: The values of our keys.
        given: Path of a leaf -> the property that it comes from.
        problems: Origin, property and problem.
        warnings: One line each.
    """

    leaves: list[Leaf] = field(default_factory=list)
    given: dict[KeyPath, Given] = field(default_factory=dict)
    problems: list[tuple[Origin, str, str]] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)

    def set(self, path: KeyPath, value: Any, given: Given, problem: str | None = None) -> None:
        """Note the value of one of our keys, and the property that it comes from."""
        self.given[path] = given
        text = given.text if value is not None else None
        self.leaves.append(
            Leaf(path, value, given.origin, text, given.problem or problem, place(given))
        )

    def default(self, path: KeyPath, value: Any, origin: Origin) -> None:
        """Note a default of SmallRye's that differs from ours."""
        self.leaves.append(Leaf(path, value, origin))

    def wrong(self, given: Given, why: str, *, is_open: bool = True) -> None:
        """Note a problem with a property."""
        self.problems.append((given.origin, place(given, is_open=is_open), given.problem or why))

    def warn(self, given: Given, why: str, *, is_own: bool = False) -> None:
        """Warn of a property without effect.

        With *is_own* it may belong to the application itself, so its value is not shown.
        """
        where = given.written if is_own else place(given)
        self.warn_at(given.origin, where, why)

    def warn_at(self, origin: Origin, where: str, why: str) -> None:
        """Warn of something at *origin*."""
        # Names may contain line breaks, and a warning must be one line.
        self.warnings[escaped(f"{origin}: {where}: {why}")] = None

    def warn_of_protocols(self, given: Given, protocol: Given | None) -> None:
        """Warn of addresses that name another protocol than ``security.protocol``."""
        in_effect = protocol.text if protocol is not None else "PLAINTEXT"
        others = other_protocols(given.text, in_effect)
        if others:
            self.warn(
                given,
                f"{', '.join(others)} has no effect in an address: security.protocol decides, and "
                f"it is {in_effect}",
            )
