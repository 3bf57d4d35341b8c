"""The values of a MicroProfile configuration: the environment over the file, profiles, ``${}``
expressions. Pure.

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
"""Characters that a value may have when its expressions are expanded."""
_DEEPEST = 32
_UUID = "quarkus.uuid"
_PROFILES = re.compile(r"%(\{[^}]*\}|[^.]*)\.(.*)", re.DOTALL)
_SHOWN = re.compile(r"[\w.\-]{1,200}")


@dataclass(frozen=True, slots=True)
class Given:
    """One value: the name that was asked for, the one that it stands under, and where."""

    name: str
    # Expanded; as it stands there, if that fails.
    text: str
    # %dev.kafka.bootstrap.servers.
    written: str
    origin: Origin
    # Why its expressions cannot be expanded.
    problem: str | None = None
    # The environment variable that it is, if it is nothing else.
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class PropertySource:
    """The entries of one file, and the profile that it belongs to: application-dev.properties;
    None: to all.
    """

    name: str
    entries: Sequence[Entry]
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class _Raw:
    text: str
    written: str
    origin: Origin
    # Of its file and of its profile; the higher one wins.
    rank: tuple[int, int]


def alpha(name: str) -> str:
    """How an environment variable spells a property: ``MP_MESSAGING_INCOMING_ORDERS_TOPIC``."""
    return re.sub("[^A-Za-z0-9]", "_", name).upper()


def profiles_of(environ: Mapping[str, str], sources: Iterable[PropertySource]) -> tuple[str, ...]:
    """The active profiles, the strongest last: what the environment says, else ``quarkus.profile``,
    else prod.
    """
    chosen = environ.get(PROFILE_VARIABLE) or environ.get("QUARKUS_PROFILE") or ""
    if not chosen:
        for source in sources:
            chosen = next(
                (one.value for one in reversed(source.entries) if one.key == "quarkus.profile"),
                chosen,
            )
    return tuple(part.strip() for part in chosen.split(",") if part.strip()) or ("prod",)


class Values:
    """What each property is, for the active profiles; ``read`` are the environment variables that
    were used.
    """

    def __init__(
        self,
        sources: Sequence[PropertySource],
        environ: Mapping[str, str],
        profiles: Sequence[str],
        new_id: str,
    ) -> None:
        self._environ = environ
        self._spelled = {alpha(name): name for name in sorted(environ, reverse=True)}
        self._profiles = profiles
        self.new_id = new_id
        self._raw: dict[str, _Raw] = {}
        # Name -> the value that expressions stand for.
        self._known: dict[str, str | None] = {}
        # Values with expressions, of all profiles: a variable may be one of another profile than
        # the active one.
        self._with_expressions = [
            one.value for source in sources for one in source.entries if "${" in one.value
        ]
        self._referenced: set[str] | None = None
        self.read: set[str] = set()
        for source in sources:
            file = 0 if source.profile is None else 1 + profiles.index(source.profile)
            for entry in source.entries:
                self._add(source.name, file, entry)

    def _add(self, file_name: str, file: int, entry: Entry) -> None:
        match = _PROFILES.fullmatch(entry.key)
        name = entry.key
        profile = 0
        if match:
            named = [part.strip() for part in match[1].strip("{}").split(",")]
            active = [number for number, one in enumerate(self._profiles, 1) if one in named]
            if not active:
                return
            name = match[2]
            profile = max(active)
        raw = _Raw(entry.value, entry.key, Origin(file_name, entry.line), (file, profile))
        # Of two alike the last one counts.
        if name not in self._raw or self._raw[name].rank <= raw.rank:
            self._raw[name] = raw

    def names(self, prefix: str) -> list[str]:
        """The names in the files that begin with *prefix*, in their order; an empty value takes
        nothing away here.
        """
        return [name for name in self._raw if name.startswith(prefix)]

    def is_variable(self, name: str) -> bool:
        """Whether the environment has it."""
        return alpha(name) in self._spelled

    def is_referenced(self, name: str) -> bool:
        """Whether the value of another property has ``${name}``, in any profile."""
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
        """The environment variables that begin with *prefix*, and that nobody has asked for."""
        mine = (name for spelled, name in self._spelled.items() if spelled.startswith(prefix))
        return sorted(name for name in mine if name not in self.read)

    def find(self, name: str) -> Given | None:
        """The value of a property; None if it has none, or an empty one, which takes it away."""
        given = self.find_even_empty(name)
        return given if given is not None and given.text else None

    def find_even_empty(self, name: str) -> Given | None:
        """The same, where an empty value means something."""
        raw = self._lookup(name)
        if raw is None:
            return None
        try:
            return Given(
                name,
                self._expanded(raw.text, (name,)),
                raw.written,
                raw.origin,
                None,
                self._reference(raw),
            )
        except CannotExpand as error:
            return Given(name, raw.text, raw.written, raw.origin, str(error))

    def _lookup(self, name: str) -> _Raw | None:
        for spelled in (*(f"%{profile}.{name}" for profile in reversed(self._profiles)), name):
            if (variable := self._spelled.get(alpha(spelled))) is not None:
                self.read.add(variable)
                return _Raw(self._environ[variable], name, Origin(VARIABLE + variable), (0, 0))
        return self._raw.get(name)

    def _reference(self, raw: _Raw) -> str | None:
        """The variable, if the value is that of one: of a name as it may stand in ``${}`` elsewhere
        too.
        """
        if raw.origin.is_variable:
            return raw.origin.source.removeprefix(VARIABLE)
        match = re.fullmatch(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", raw.text)
        return match[1] if match and match[1] in self._environ else None

    def _value_of(self, name: str, asked: tuple[str, ...]) -> str | None:
        """What stands for ``${name}``; *asked* are the properties whose values are being
        expanded.
        """
        if name == _UUID:
            return self.new_id
        # A value that is known is not expanded anew: references may double at each level.
        if name not in self._known:
            raw = self._lookup(name)
            if name in asked:
                raise CannotExpand("an expression that stands for itself")
            self._known[name] = (
                (self._expanded(raw.text, (*asked, name)) or None) if raw is not None else None
            )
        return self._known[name]

    def _expanded(self, text: str, asked: tuple[str, ...]) -> str:
        if len(asked) > _DEEPEST:
            raise CannotExpand("expressions inside of expressions, too deeply")
        return self._text(parsed(text), asked)

    def _text(self, parts: Sequence[Part], asked: tuple[str, ...]) -> str:
        texts: list[str] = []
        for part in parts:
            texts.append(part if isinstance(part, str) else self._of(part, asked))
            if sum(map(len, texts)) > LONGEST:
                raise CannotExpand(f"expands to more than {LONGEST} characters")
        return "".join(texts)

    def _of(self, expression: Expression, asked: tuple[str, ...]) -> str:
        name = self._text(expression.name, asked)
        value = self._value_of(name, asked)
        if value is None and expression.default is not None:
            return self._text(expression.default, asked)
        if value is None:
            shown = name if _SHOWN.fullmatch(name) and expression.name == (name,) else "..."
            raise CannotExpand(
                f"${{{shown}}} is not set and has no default; set it, or write ${{{shown}:default}}"
            )
        return value
