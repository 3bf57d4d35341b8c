"""Kinds of configured values: what may be written, what it means, and how it is shown again. Pure."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeVar

from reactive_kafka.wire import TOPIC_RULE, is_topic

T = TypeVar("T")

INT32_MAX = 2**31 - 1
_LONGEST_S = 10**9  # 31 years: anything longer is a mistake, and would overflow timers
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|kB|KB|MB|GB|KiB|MiB|GiB)")
_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_OBJECT = re.compile(f"{_DOTTED}:{_DOTTED}")
_SERVER = re.compile(r"(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]+)(?::(\d{1,5}))?")
_REMOTE = re.compile(r"sc://(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]+)(?::(\d{1,5}))?(?:/|/(?:;[\w.-]+=[^;\s]+)+)?")
_MASTER = re.compile(
    r"local|local\[\s*([1-9]\d*|\*)\s*(,\s*[1-9]\d*\s*)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://\S+|yarn|k8s://\S+"
)


class Hint(ValueError):
    """Why one value was refused. The text follows what is allowed: "expected ...; did you mean 'key'?".

    Where the text itself says in full what is allowed, *expects* replaces what the kind says.
    """

    def __init__(self, why: str, *, expects: str | None = None) -> None:
        super().__init__(why)
        self.expects = expects


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of value.

    Args:
        expects: What is allowed, for errors and docs.
        read: What was written (by a file, by code, in the environment) -> its meaning. It raises any ValueError for
            what is not allowed, and a :class:`Hint` where there is more to say.
        show: A meaning -> what a user would write.
        native: The types that an environment variable may be read as, when it is TOML. A value of another type (the
            topic ``2024``) is taken as text. Empty: whatever TOML makes of it.
        free: Any text is allowed, so the value may stand in a file of its own (``*_file``).
    """

    expects: str
    read: Callable[[Any], T]
    show: Callable[[T], Any] = field(default=lambda value: value)
    native: tuple[type, ...] = ()
    free: bool = False

    def parse(self, raw: Any) -> T:
        """The meaning of *raw*.

        Raises:
            ValueError: It is not allowed. The text, "expected ...", says what is.
        """
        try:
            return self.read(raw)
        except Hint as hint:
            raise ValueError(f"expected {hint.expects or self.expects}; {hint}") from None
        except ValueError:
            raise ValueError(f"expected {self.expects}") from None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The name in *known* closest to *word*, or None if none is close. Case, ``-`` and ``.`` do not count."""
    by_form = {_form(name): name for name in known}
    close = difflib.get_close_matches(_form(word), by_form, n=1, cutoff=0.7)
    return by_form[close[0]] if close else None


def unknown_channel(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown channel: the channels that exist, and the one probably meant."""
    names = sorted(known)
    near = did_you_mean(name, names)
    there = f"there are {', '.join(map(repr, names))}" if names else "there are none"
    return f" ({there})" + (f"; did you mean {near!r}?" if near else "")


def _form(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def parse_duration(raw: Any) -> float:
    """Seconds, from ``"500ms"``, ``"5s"``, ``"2m"``, ``"1h"`` or a number of seconds."""
    if isinstance(raw, str) and (match := _DURATION.fullmatch(raw.strip())):
        seconds = float(Decimal(match[1]) * _SECONDS[match[2]])
    elif isinstance(raw, int | float) and not isinstance(raw, bool):
        seconds = float(raw) if abs(raw) <= _LONGEST_S else math.inf  # float() of a huge int would overflow
    else:
        raise ValueError("not a duration")
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError("out of range")
    return seconds


def show_duration(seconds: float) -> str:
    """The shortest way to write *seconds* that :func:`parse_duration` reads back exactly."""
    exact = Decimal(repr(seconds))
    for unit in ("h", "m", "s"):
        count = exact / _SECONDS[unit]
        if count == count.to_integral_value() and (count or unit == "s"):
            return f"{int(count)}{unit}"
    milliseconds = f"{exact / _SECONDS['ms']:f}"
    return (milliseconds.rstrip("0").rstrip(".") if "." in milliseconds else milliseconds) + "ms"


def parse_size(raw: Any) -> int:
    """Bytes, from ``"64KiB"`` (1024s), ``"1MB"`` (1000s) or a number of bytes."""
    if isinstance(raw, str) and (match := _SIZE.fullmatch(raw.strip())):
        size = Decimal(match[1]) * _BYTES[match[2]]
        if size != size.to_integral_value():
            raise ValueError("not a whole number of bytes")
        return int(size)
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    raise ValueError("not a size")


def show_size(size: int) -> str | int:
    """The size in the largest binary unit that divides it, or as a plain number."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return size


def duration(*, zero: bool = True) -> Kind[float]:
    """A length of time; 0 only where *zero*."""

    def read(raw: Any) -> float:
        seconds = parse_duration(raw)
        if not seconds and not zero:
            raise ValueError("zero")
        return seconds

    expects = 'a duration: "500ms", "5s", "2m", "1h" or seconds as a number' + ("" if zero else ", above 0")
    return Kind(expects, read, show_duration)


def size(*, least: int = 1) -> Kind[int]:
    """A number of bytes of at least *least*."""

    def read(raw: Any) -> int:
        number = parse_size(raw)
        if number < least:
            raise ValueError("too small")
        return number

    return Kind(f'a size: "64KiB", "1MB" or bytes as a number, at least {least}', read, show_size)


def integer(least: int, most: int = INT32_MAX, unit: str = "") -> Kind[int]:
    """A whole number from *least* to *most*, both included."""

    def read(raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not least <= raw <= most:
            raise ValueError("not such a number")
        return raw

    reach = f"of at least {least}" if most == INT32_MAX else f"from {least} to {most}"
    return Kind(f"a whole number{f' of {unit}' if unit else ''} {reach}", read)


def choice(*allowed: str, later: tuple[str, ...] = (), imported: str = "") -> Kind[Any]:
    """One of *allowed*, spelled exactly so. Those in *later* are refused as not supported yet.

    Args:
        imported: The form of an object of the user's own that is allowed too: ``module:function``. Nothing is
            imported here.
    """

    def read(raw: Any) -> str:
        if isinstance(raw, str) and (raw in allowed or (imported and names_an_object(raw))):
            return raw
        if isinstance(raw, str) and raw in later:
            raise Hint(f"{raw!r} is not supported yet")
        if isinstance(raw, str) and (near := did_you_mean(raw, (*allowed, *later))):
            raise Hint(f"did you mean {near!r}?")
        raise ValueError("none of them")

    expects = "one of " + ", ".join(f'"{value}"' for value in allowed) + (f' or "{imported}"' if imported else "")
    return Kind(expects, read, native=(str,))


def names_an_object(name: object) -> bool:
    """True for a string of the form ``package.module:object``."""
    return isinstance(name, str) and _OBJECT.fullmatch(name) is not None


def comma_list(raw: Any) -> list[Any]:
    """The items of a list, or of a string with commas; ValueError if there are none."""
    items = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple) or not items:
        raise ValueError("not a list")
    return list(items)


def read_text(raw: Any) -> str:
    """*raw*, if it is a string that is not blank."""
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("not a string")
    return raw


def _read_boolean(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("not a boolean")
    return raw


def _read_topic(raw: Any) -> str:
    if not isinstance(raw, str) or not is_topic(raw):
        raise ValueError("not a topic")
    return raw


def _read_topics(raw: Any) -> tuple[str, ...]:
    topics = comma_list(raw)
    if len(set(map(str, topics))) < len(topics):
        raise ValueError("a topic twice")
    return tuple(map(_read_topic, topics))


def _read_servers(raw: Any) -> str:
    """Comma-separated ``host:port``, or ``embedded``."""
    servers = comma_list(raw)
    return "embedded" if servers == ["embedded"] else ",".join(map(_read_server, servers))


def _read_server(raw: Any) -> str:
    match = _SERVER.fullmatch(read_text(raw).strip())
    if match is None or match[0] == "embedded" or not _is_port(match[1]):
        raise ValueError("not a server")
    return match[0]


def _is_port(port: str | None) -> bool:
    return port is None or 0 < int(port) < 65536


def _read_remote(raw: Any) -> str:
    match = _REMOTE.fullmatch(read_text(raw).strip())
    if match is None or not _is_port(match[1]):
        raise ValueError("not a Spark Connect server")
    return match[0]


def _read_master(raw: Any) -> str:
    written = read_text(raw).strip()
    if _MASTER.fullmatch(written):
        return written
    if near := _near_master(written):
        raise Hint(f"did you mean {near!r}?")
    raise ValueError("not a master")


def _near_master(written: str) -> str | None:
    """The master that was probably meant; of a URL only its beginning, because the rest may hold a password."""
    word, rest = re.match(r"([^\[:/]*)(.*)", written, re.DOTALL).groups()  # type: ignore[union-attr]  # matches all
    near = did_you_mean(word, ("local", "local-cluster", "spark", "yarn", "k8s"))
    if near in ("spark", "k8s"):
        return f"{near}://..."
    if near is None or _MASTER.fullmatch(near + rest):
        return near and near + rest
    return {"local": "local[*]", "local-cluster": "local-cluster[2,1,1024]"}.get(near, near)


BOOLEAN = Kind("true or false", _read_boolean)
TEXT = Kind("a string that is not empty", read_text, native=(str,), free=True)
TOPIC = Kind(f"the name of a topic: {TOPIC_RULE}", _read_topic, native=(str,))
TOPICS = Kind(f"a list of different topics: {TOPIC_RULE}", _read_topics, show=list, native=(str, list))
SERVERS = Kind('"host:port", several with commas or as a list, or "embedded"', _read_servers, native=(str, list))
MASTER = Kind(
    'a Spark master: "local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", "spark://host:7077", '
    '"yarn" or "k8s://..."',
    _read_master,
    native=(str,),
    free=True,
)
REMOTE = Kind(
    'a Spark Connect server: "sc://host" or "sc://host:15002"; its parameters may follow: "/;use_ssl=true;token=..."',
    _read_remote,
    native=(str,),
    free=True,
)
