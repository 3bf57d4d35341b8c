"""What a configured value may be: kinds that turn what was written into what is meant. Pure.

A kind's ``parse`` takes the value as the file (TOML, YAML, JSON), the code or the environment gave it, and raises
:class:`ValueError` with the end of a sentence ("expected ...") that says what is allowed.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from reactive_kafka.wire import TOPIC_RULE, is_topic

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|kB|KB|MB|GB|KiB|MiB|GiB)")
_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_OBJECT = re.compile(f"{_DOTTED}:{_DOTTED}")
_REMOTE = re.compile(r"sc://(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]+)(?::(\d{1,5}))?(?:/|/(?:;[\w.-]+=[^;\s]+)+)?")
_MASTER = re.compile(
    r"local|local\[\s*([1-9]\d*|\*)\s*(,\s*[1-9]\d*\s*)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://\S+|yarn|k8s://\S+"
)
_MASTERS = (
    'a Spark master: "local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", "spark://host:7077", '
    '"yarn" or "k8s://..."'
)
INT32_MAX = 2**31 - 1
_LONGEST_S = 10**9  # 31 years: what is longer is a mistake, and would overflow timers


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value.

    Args:
        expects: What is allowed, for errors and docs.
        parse: What was written -> what is meant; raises ValueError.
        show: What is meant -> what a user would write.
        native: Types that an environment variable's value may have when it is read as TOML; a value that reads
            as another type (the topic ``2024``) is taken as the text it is. Empty: the TOML value is taken.
        free: Any text will do, so the value may stand in a file of its own (``*_file``).
    """

    expects: str
    parse: Callable[[Any], Any]
    show: Callable[[Any], Any] = field(default=lambda value: value)
    native: tuple[type, ...] = ()
    free: bool = False


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The name in *known* that is closest to *word*, or None when none is close; ``-``, ``.`` and case do not count."""
    by_form = {_form(name): name for name in known}
    close = difflib.get_close_matches(_form(word), by_form, n=1, cutoff=0.7)
    return by_form[close[0]] if close else None


def unknown_channel(name: str, known: Iterable[str]) -> str:
    """The end of an error about a channel that is not there: those that are, and the one that was probably meant."""
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
        seconds = _finite(raw)
    else:
        raise ValueError("not a duration")
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError("out of range")
    return seconds


def _finite(number: int | float) -> float:
    if abs(number) > _LONGEST_S or not math.isfinite(number):  # the first test keeps float() from overflowing
        raise ValueError("out of range")
    return float(number)


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
    """The size with the largest binary unit that divides it, or the plain number."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return size


def _expecting(expects: str, parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(raw: Any) -> Any:
        try:
            return parse(raw)
        except ValueError:
            raise ValueError(f"expected {expects}") from None

    return checked


def duration(*, zero: bool = True) -> Kind:
    """A length of time; 0 only where *zero*."""
    expects = 'a duration: "500ms", "5s", "2m", "1h" or seconds as a number' + ("" if zero else ", above 0")

    def parse(raw: Any) -> float:
        seconds = parse_duration(raw)
        if not seconds and not zero:
            raise ValueError("zero")
        return seconds

    return Kind(expects, _expecting(expects, parse), show_duration)


def size(*, least: int = 1) -> Kind:
    """A number of bytes of at least *least*."""
    expects = f'a size: "64KiB", "1MB" or bytes as a number, at least {least}'

    def parse(raw: Any) -> int:
        number = parse_size(raw)
        if number < least:
            raise ValueError("too small")
        return number

    return Kind(expects, _expecting(expects, parse), show_size)


def integer(least: int, most: int = INT32_MAX, unit: str = "") -> Kind:
    """A whole number from *least* to *most*, both included."""
    reach = f"of at least {least}" if most == INT32_MAX else f"from {least} to {most}"
    expects = f"a whole number{f' of {unit}' if unit else ''} {reach}"

    def parse(raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not least <= raw <= most:
            raise ValueError("not such a number")
        return raw

    return Kind(expects, _expecting(expects, parse))


def _parse_boolean(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("not a boolean")
    return raw


def _parse_text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("not a string")
    return raw


def text(expects: str = "a string that is not empty") -> Kind:
    """Any string with something in it."""
    return Kind(expects, _expecting(expects, _parse_text), native=(str,), free=True)


def choice(*allowed: str, later: tuple[str, ...] = (), imported: str = "") -> Kind:
    """One of *allowed*, spelled exactly so; those in *later* are named as not supported yet.

    Args:
        imported: What else is allowed, by its place in a module: ``module:function``. Only its form is checked here.
    """
    expects = "one of " + ", ".join(f'"{value}"' for value in allowed) + (f' or "{imported}"' if imported else "")

    def parse(raw: Any) -> str:
        if isinstance(raw, str) and (raw in allowed or (imported and names_an_object(raw))):
            return raw
        if isinstance(raw, str) and raw in later:
            raise ValueError(f"not supported yet; expected {expects}")
        near = did_you_mean(raw, (*allowed, *later)) if isinstance(raw, str) else None
        raise ValueError(f"expected {expects}" + (f"; did you mean {near!r}?" if near else ""))

    return Kind(expects, parse, native=(str,))


def names_an_object(name: str) -> bool:
    """True for the form ``package.module:object``."""
    return _OBJECT.fullmatch(name) is not None


def _parse_topic(raw: Any) -> str:
    if not isinstance(raw, str) or not is_topic(raw):
        raise ValueError("not a topic")
    return raw


def _parse_topics(raw: Any) -> tuple[str, ...]:
    raw = _comma_list(raw) if isinstance(raw, str) else raw
    if not isinstance(raw, list | tuple) or not raw or len(set(map(str, raw))) < len(raw):
        raise ValueError("not a list of topics")
    return tuple(_parse_topic(topic) for topic in raw)


def _comma_list(value: str) -> list[str]:
    return [part.strip() for part in value.split(",")]


def _parse_servers(raw: Any) -> str:
    """Comma-separated ``host:port``, or ``embedded``."""
    servers = _comma_list(raw) if isinstance(raw, str) else raw
    if not isinstance(servers, list | tuple) or not servers:
        raise ValueError("no servers")
    if len(servers) == 1 and servers[0] == "embedded":
        return "embedded"
    return ",".join(_server(server) for server in servers)


def _server(server: Any) -> str:
    if not isinstance(server, str):
        raise ValueError("not a string")
    match = re.fullmatch(r"(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]+)(?::(\d{1,5}))?", server.strip())
    if match is None or server == "embedded" or (match[1] and not 0 < int(match[1]) < 65536):
        raise ValueError("not a server")
    return server.strip()


def _parse_remote(raw: Any) -> str:
    """``sc://host``, with a port and Connect's own parameters where they are needed."""
    match = _REMOTE.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if match is None or (match[1] and not 0 < int(match[1]) < 65536):
        raise ValueError("not a Spark Connect server")
    return str(raw).strip()


def _parse_master(raw: Any) -> str:
    """A master that Spark knows; whether it is there shows when Spark starts."""
    if isinstance(raw, str) and _MASTER.fullmatch(raw.strip()):
        return raw.strip()
    near = _near_master(raw) if isinstance(raw, str) else None
    raise ValueError(f"expected {_MASTERS}" + (f"; did you mean {near!r}?" if near else ""))


def _near_master(raw: str) -> str | None:
    """What was probably meant; never more of a URL than how it begins, for a password may stand in it."""
    word, rest = re.match(r"([^\[:/]*)(.*)", raw.strip(), re.DOTALL).groups()  # type: ignore[union-attr]  # matches all
    near = did_you_mean(word, ("local", "local-cluster", "spark", "yarn", "k8s"))
    if near in ("spark", "k8s"):
        return f"{near}://..."
    if near is None or _MASTER.fullmatch(near + rest):
        return near and near + rest
    return {"local": "local[*]", "local-cluster": "local-cluster[2,1,1024]"}.get(near, near)


def _kind(expects: str, parse: Callable[[Any], Any], **more: Any) -> Kind:
    return Kind(expects, _expecting(expects, parse), **more)


BOOLEAN = _kind("true or false", _parse_boolean)
TEXT = text()
TOPIC = _kind(f"the name of a topic: {TOPIC_RULE}", _parse_topic, native=(str,))
TOPICS = _kind(f"a list of different topics: {TOPIC_RULE}", _parse_topics, show=list, native=(str, list))
SERVERS = _kind('"host:port", several with commas or as a list, or "embedded"', _parse_servers, native=(str, list))
MASTER = Kind(_MASTERS, _parse_master, native=(str,), free=True)
REMOTE = _kind(
    'a Spark Connect server: "sc://host" or "sc://host:15002"; its parameters may follow: "/;use_ssl=true;token=..."',
    _parse_remote,
    native=(str,),
    free=True,
)
