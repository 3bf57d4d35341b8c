"""Looks up properties of a MicroProfile configuration. Pure.

The environment wins over files, active profiles win over no profile, and ``${}`` is expanded.

Source: SmallRye Config, ``EnvConfigSource``, ``ProfileConfigSourceInterceptor``,
``ExpressionConfigSourceInterceptor``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from reactive_kafka.config.layers import PROFILE_VARIABLE, VARIABLE, Origin
from reactive_kafka.config.microprofile.expressions import CannotExpand, Expression, Part, parsed
from reactive_kafka.config.microprofile.properties_syntax import Entry

LONGEST = 65_536
"""The most characters of a value after its expressions are expanded."""
_DEEPEST = 32
_UUID = "quarkus.uuid"
_PROFILES = re.compile(r"%(\{[^}]*\}|[^.]*)\.(.*)", re.DOTALL)
_SHOWN = re.compile(r"[\w.\-]{1,200}")


@dataclass(frozen=True, slots=True)
class Given:
    """The value of a property."""

    # The name that was looked up.
    name: str
    # The value with its expressions expanded. As written, if that fails.
    text: str
    # The name as written: %dev.kafka.bootstrap.servers.
    written: str
    origin: Origin
    # Why its expressions cannot be expanded.
    problem: str | None = None
    # The environment variable whose value this is, if it is just that.
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class PropertySource:
    """The entries of one file, and its profile (application-dev.properties); None: all profiles."""

    name: str
    entries: Sequence[Entry]
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class _RawValue:
    """A value as written, its expressions not expanded."""

    text: str
    written: str
    origin: Origin
    # The ranks of its file and of its profile. The higher one wins.
    rank: tuple[int, int]


def alpha(name: str) -> str:
    """Return a property's name as a variable: ``MP_MESSAGING_INCOMING_ORDERS_TOPIC``."""
    return re.sub("[^A-Za-z0-9]", "_", name).upper()


def profiles_of(environ: Mapping[str, str], sources: Iterable[PropertySource]) -> tuple[str, ...]:
    """Return the active profiles, the strongest last.

    The environment names them, else ``quarkus.profile`` in the files; by default it is prod.
    """
    chosen = environ.get(PROFILE_VARIABLE) or environ.get("QUARKUS_PROFILE") or ""
    if not chosen:
        for source in sources:
            for entry in source.entries:
                if entry.key == "quarkus.profile":
                    # The last one counts.
                    chosen = entry.value
    return tuple(part.strip() for part in chosen.split(",") if part.strip()) or ("prod",)


class Values:
    """Looks up properties for the active profiles.

    Attributes:
        new_id: A text that no other start has; the value of ``${quarkus.uuid}``.
        read: The environment variables that were used.
    """

    def __init__(
        self,
        sources: Sequence[PropertySource],
        environ: Mapping[str, str],
        profiles: Sequence[str],
        new_id: str,
    ) -> None:
        self._environ = environ
        # The spelling in capitals -> the variable.
        self._variables = {alpha(name): name for name in sorted(environ, reverse=True)}
        self._profiles = profiles
        self.new_id = new_id
        self._raw: dict[str, _RawValue] = {}
        # Name -> the value of ${name}.
        self._known: dict[str, str | None] = {}
        # Values with expressions, of all profiles: a property that is only a variable may be used
        # by another profile than the active one.
        self._with_expressions = [
            entry.value for source in sources for entry in source.entries if "${" in entry.value
        ]
        self._referenced: set[str] | None = None
        self.read: set[str] = set()
        for source in sources:
            file_rank = 0 if source.profile is None else 1 + profiles.index(source.profile)
            for entry in source.entries:
                self._add(source.name, file_rank, entry)

    def _add(self, file_name: str, file_rank: int, entry: Entry) -> None:
        """Keep an entry, unless it is for other profiles or a stronger one has the same name."""
        match = _PROFILES.fullmatch(entry.key)
        name = entry.key
        profile_rank = 0
        if match:
            named = [part.strip() for part in match[1].strip("{}").split(",")]
            active = [rank for rank, profile in enumerate(self._profiles, 1) if profile in named]
            if not active:
                return
            name = match[2]
            profile_rank = max(active)
        origin = Origin(file_name, entry.line)
        raw = _RawValue(entry.value, entry.key, origin, (file_rank, profile_rank))
        # Of two with the same rank the last one counts.
        if name not in self._raw or self._raw[name].rank <= raw.rank:
            self._raw[name] = raw

    def names(self, prefix: str) -> list[str]:
        """Return the names in the files that begin with *prefix*, also those with empty values."""
        return [name for name in self._raw if name.startswith(prefix)]

    def is_variable(self, name: str) -> bool:
        """Return whether the environment has the property."""
        return alpha(name) in self._variables

    def is_referenced(self, name: str) -> bool:
        """Return whether the value of another property has ``${name}``, in any profile."""
        if self._referenced is None:
            self._referenced = set()
            for text in self._with_expressions:
                with suppress(CannotExpand):
                    self._note_references(parsed(text), self._referenced)
        return name in self._referenced

    def _note_references(self, parts: Sequence[Part], found: set[str]) -> None:
        for part in parts:
            if isinstance(part, str):
                continue
            self._note_references(part.name, found)
            self._note_references(part.default or (), found)
            with suppress(CannotExpand):
                found.add(self._text(part.name, ()))

    def unread(self, prefix: str) -> list[str]:
        """Return the variables that begin with *prefix* and that were never looked up."""
        variables = [
            name for spelling, name in self._variables.items() if spelling.startswith(prefix)
        ]
        return sorted(name for name in variables if name not in self.read)

    def find(self, name: str) -> Given | None:
        """Return the value of a property. None without one; an empty value takes it away."""
        given = self.find_even_empty(name)
        return given if given is not None and given.text else None

    def find_even_empty(self, name: str) -> Given | None:
        """Return the value of a property whose empty value means something; None without one."""
        raw = self._lookup(name)
        if raw is None:
            return None
        try:
            text = self._expanded(raw.text, (name,))
        except CannotExpand as error:
            return Given(name, raw.text, raw.written, raw.origin, problem=str(error))
        return Given(name, text, raw.written, raw.origin, reference=self._reference(raw))

    def _lookup(self, name: str) -> _RawValue | None:
        for spelling in (*(f"%{profile}.{name}" for profile in reversed(self._profiles)), name):
            variable = self._variables.get(alpha(spelling))
            if variable is not None:
                self.read.add(variable)
                text = self._environ[variable]
                return _RawValue(text, name, Origin(VARIABLE + variable), (0, 0))
        return self._raw.get(name)

    def _reference(self, raw: _RawValue) -> str | None:
        """Return the variable whose value this is; None if it is not just that.

        The TOML that we print refers to it, so its name must be one that ``${}`` allows there.
        """
        if raw.origin.is_variable:
            return raw.origin.source.removeprefix(VARIABLE)
        match = re.fullmatch(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", raw.text)
        return match[1] if match and match[1] in self._environ else None

    def _value_of(self, name: str, expanding: tuple[str, ...]) -> str | None:
        """Return the value of ``${name}``; None without one.

        *expanding* are the properties whose values are being expanded.
        """
        if name == _UUID:
            return self.new_id
        # A known value is not expanded again, because references may double at each level.
        if name not in self._known:
            raw = self._lookup(name)
            if name in expanding:
                raise CannotExpand("an expression that stands for itself")
            value = None
            if raw is not None:
                value = self._expanded(raw.text, (*expanding, name)) or None
            self._known[name] = value
        return self._known[name]

    def _expanded(self, text: str, expanding: tuple[str, ...]) -> str:
        if len(expanding) > _DEEPEST:
            raise CannotExpand("expressions inside of expressions, too deeply")
        return self._text(parsed(text), expanding)

    def _text(self, parts: Sequence[Part], expanding: tuple[str, ...]) -> str:
        texts: list[str] = []
        for part in parts:
            texts.append(part if isinstance(part, str) else self._expression(part, expanding))
            if sum(map(len, texts)) > LONGEST:
                raise CannotExpand(f"expands to more than {LONGEST} characters")
        return "".join(texts)

    def _expression(self, expression: Expression, expanding: tuple[str, ...]) -> str:
        name = self._text(expression.name, expanding)
        value = self._value_of(name, expanding)
        if value is not None:
            return value
        if expression.default is not None:
            return self._text(expression.default, expanding)
        # A name that was made by expressions may hold secrets.
        is_plain = _SHOWN.fullmatch(name) and expression.name == (name,)
        shown = name if is_plain else "..."
        raise CannotExpand(
            f"${{{shown}}} is not set and has no default; set it, or write ${{{shown}:default}}"
        )
