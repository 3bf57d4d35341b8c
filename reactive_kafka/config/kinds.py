"""Kinds of configured values: what users may write, what it means, how to show it. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeVar

from reactive_kafka.config.json_schema import value_schemas as schemas
from reactive_kafka.near_names import near_names
from reactive_kafka.wire import TOPIC_RULE, is_topic

T = TypeVar("T")

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# 31 years. Anything longer is a mistake, and would overflow timers.
_LONGEST_S = 10**9
# Event loops wait for milliseconds. How often something tiny fits into an hour would overflow.
_SHORTEST_S = 0.001
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|kB|KB|MB|GB|KiB|MiB|GiB)")
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_OBJECT = re.compile(f"{_DOTTED}:{_DOTTED}")
# A host name that DNS can look up: labels of at most 63 characters, 253 in all.
_NAME = r"(?=[^:]{1,253}(?::|\Z))[\w-]{1,63}(?:\.[\w-]{1,63})*\.?"
_SERVER = re.compile(rf"(?!embedded\Z)(?:\[[0-9a-fA-F:.%\w]+\]|{_NAME})(?::([0-9]{{1,5}}))?")
_HOST = re.compile(_NAME)
_PEER = re.compile(rf"(?:\[[0-9a-fA-F:.]+\]|{_NAME}):([0-9]{{1,5}})")
_REGISTRY = re.compile(r"https?://(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::([0-9]{1,5}))?(?:/[\w./~%-]*)?")
_REMOTE = re.compile(
    r"sc://(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]+)(?::([0-9]{1,5}))?(?:/|/(?:;[\w.-]+=[^;\s]+)+)?"
)
_MASTER = re.compile(
    r"local|local\[\s*([1-9]\d*|\*)\s*(,\s*[1-9]\d*\s*)?\]"
    r"|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://\S+|yarn|k8s://\S+"
)


class Hint(ValueError):
    """Says why one value was refused.

    The text follows what is allowed: "expected ...; did you mean 'key'?". *expects* replaces what
    the kind says is allowed, if the text explains it in full.
    """

    def __init__(self, why: str, *, expects: str | None = None) -> None:
        super().__init__(why)
        self.expects = expects


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of value.

    Attributes:
        expects: What is allowed, for errors and docs.
        read: Turns what a file, code or the environment says into its meaning. For a value that is
            not allowed it returns None, or raises any ValueError. It raises a :class:`Hint` if
            there is more to say.
        show: Turns a meaning into what a user would write.
        native: The types that the TOML text of an environment variable may have. A text that reads
            as another type (the topic ``2024``) stays a text. Empty: any type.
        free: Any text is allowed, so the value may be in a file of its own (``*_file``).
        json: What a file may hold, as JSON Schema. True: as ``native`` says. False: nothing,
            because the value is given in code.
    """

    expects: str
    read: Callable[[Any], T | None]
    show: Callable[[T], Any] = field(default=lambda value: value)
    native: tuple[type, ...] = ()
    free: bool = False
    json: schemas.Schema = field(default=True, compare=False)

    def parse(self, raw: Any) -> T:
        """Return the meaning of *raw*.

        Raises:
            ValueError: *raw* is not allowed. The text, "expected ...", says what is.
        """
        try:
            meaning = self.read(raw)
        except Hint as hint:
            raise ValueError(f"expected {hint.expects or self.expects}; {hint}") from None
        except ValueError:
            meaning = None
        if meaning is None:
            raise ValueError(f"expected {self.expects}")
        return meaning


def only(allowed: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Return the reader of values that mean themselves, if they are *allowed*."""
    return lambda raw: raw if allowed(raw) else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the name in *known* that is closest to *word*; None if none is close.

    Case, ``-`` and ``.`` do not count.
    """
    by_form = {_form(name): name for name in known}
    close = near_names(_form(word), by_form, likeness=0.7)
    return by_form[close[0]] if close else None


def unknown_channel(name: str, known: Iterable[str]) -> str:
    """Return the end of an error: the channels that exist, and the one that was probably meant."""
    names = sorted(known)
    if not names:
        return " (there are none)"
    existing = f" (there are {', '.join(map(repr, names))})"
    near = did_you_mean(name, names)
    return existing if near is None else f"{existing}; did you mean {near!r}?"


def _form(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def parse_duration(raw: Any) -> float | None:
    """Return seconds for ``"500ms"``, ``"5s"``, ``"2m"``, ``"1h"`` or a number; else None.

    What is above 0 and below a millisecond counts as a millisecond.
    """
    if isinstance(raw, str):
        match = _DURATION.fullmatch(raw.strip())
        if match is None:
            return None
        seconds = float(Decimal(match[1]) * _SECONDS[match[2]])
    elif isinstance(raw, int | float) and not isinstance(raw, bool):
        # float() of a huge int would overflow.
        seconds = float(raw) if abs(raw) <= _LONGEST_S else math.inf
    else:
        return None
    if 0 < seconds < _SHORTEST_S:
        return _SHORTEST_S
    return seconds if 0 <= seconds <= _LONGEST_S else None


def show_duration(seconds: float) -> str:
    """Return the shortest text that :func:`parse_duration` reads back as exactly *seconds*."""
    exact = Decimal(repr(seconds))
    for unit in ("h", "m", "s"):
        count = exact / _SECONDS[unit]
        if count == count.to_integral_value() and (count or unit == "s"):
            return f"{int(count)}{unit}"
    milliseconds = f"{exact / _SECONDS['ms']:f}"
    if "." in milliseconds:
        milliseconds = milliseconds.rstrip("0").rstrip(".")
    return f"{milliseconds}ms"


def parse_size(raw: Any) -> int | None:
    """Return bytes for ``"64KiB"`` (1024s), ``"1MB"`` (1000s) or a number of bytes; else None."""
    if isinstance(raw, str):
        match = _SIZE.fullmatch(raw.strip())
        if match is None:
            return None
        size = Decimal(match[1]) * _BYTES[match[2]]
        return int(size) if size <= INT64_MAX and size == size.to_integral_value() else None
    return raw if is_integer(raw) and 0 <= raw <= INT64_MAX else None


def show_size(size: int) -> str | int:
    """Return the size in the largest binary unit that divides it, or as a plain number."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return size


def is_integer(raw: Any) -> bool:
    """Return whether *raw* is a whole number. Python's True and False are not."""
    return isinstance(raw, int) and not isinstance(raw, bool)


def integer(least: int, most: int = INT32_MAX, unit: str = "") -> Kind[int]:
    """Return the kind of whole numbers from *least* to *most*, both included."""
    limits = f"of at least {least}" if most == INT32_MAX else f"from {least} to {most}"
    of_unit = f" of {unit}" if unit else ""
    expects = f"a whole number{of_unit} {limits}"
    allowed = only(lambda raw: is_integer(raw) and least <= raw <= most)
    return Kind(expects, allowed, json=schemas.whole(least, most))


def choice(
    *allowed: str, imported: str = "", elsewhere: Mapping[str, str] | None = None
) -> Kind[Any]:
    """Return the kind of values that are one of *allowed*, spelled exactly like that.

    Args:
        allowed: The values.
        imported: The form of an object of the user's own that is also allowed, such as
            ``module:function``. Nothing is imported here.
        elsewhere: Other products' names -> ours, for "did you mean".
    """

    def read(raw: Any) -> str | None:
        if not isinstance(raw, str):
            return None
        if raw in allowed or (imported and names_an_object(raw)):
            return raw
        near = (elsewhere or {}).get(raw) or did_you_mean(raw, allowed)
        if near is not None:
            raise Hint(f"did you mean {near!r}?")
        return None

    expects = "one of " + ", ".join(f'"{value}"' for value in allowed)
    if imported:
        expects += f' or "{imported}"'
    named = schemas.one_of(allowed)
    return Kind(
        expects,
        read,
        native=(str,),
        json=schemas.either(named, schemas.OBJECT) if imported else named,
    )


def names_an_object(name: object) -> bool:
    """Return whether *name* is a string of the form ``package.module:object``."""
    return isinstance(name, str) and _OBJECT.fullmatch(name) is not None


def comma_list(raw: Any) -> list[Any]:
    """Return the items of a list, or of a string with commas. Raises ValueError without items."""
    items = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple) or not items:
        raise ValueError("not a list")
    return list(items)


def is_text(raw: Any) -> bool:
    """Return whether *raw* is a string that is not blank."""
    return isinstance(raw, str) and bool(raw.strip())


def read_sent_text(raw: Any) -> Any:
    """Read a text that is sent in UTF-8, as Kafka and other servers take it."""
    if not is_text(raw):
        return None
    try:
        raw.encode()
    except UnicodeEncodeError as error:
        # A variable in another encoding has lone surrogates in place of its bytes.
        raise Hint(f"UTF-8 does not have its character {error.start + 1}") from None
    return raw


def _read_topic_config(raw: Any) -> str | None:
    """Return a topic's config as Kafka writes it: all of its values are text."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, int | float):
        return str(raw)
    if isinstance(raw, list | tuple) and raw and all(map(is_text, raw)):
        return ",".join(part.strip() for part in raw)
    return raw.strip() if is_text(raw) else None


def _read_topics(raw: Any) -> tuple[str, ...] | None:
    topics = tuple(map(TOPIC.parse, comma_list(raw)))
    return topics if len(set(topics)) == len(topics) else None


def _read_names(raw: Any) -> tuple[str, ...] | None:
    names = tuple(map(TEXT.parse, comma_list(raw)))
    return names if len(set(names)) == len(names) else None


def _read_header_values(raw: Any) -> tuple[str, ...] | None:
    """Read one text, or a list of them. A text is one value, commas included."""
    values = [raw] if isinstance(raw, str) else raw
    if not isinstance(values, list | tuple) or not values:
        return None
    texts = tuple(value for value in values if isinstance(value, str))
    for text in texts:
        # A text with half of a surrogate pair raises a ValueError: no header can have it.
        text.encode()
    return texts if len(set(texts)) == len(values) else None


def _read_hosts(raw: Any) -> tuple[str, ...] | None:
    hosts = tuple(TEXT.parse(host).lower().removesuffix(".") for host in comma_list(raw))
    return hosts if all(map(_HOST.fullmatch, hosts)) and len(set(hosts)) == len(hosts) else None


def _read_peers(raw: Any) -> tuple[str, ...] | None:
    """Read different ``host:port``; the page of each is at ``http://host:port/``."""
    peers = tuple(map(_PEER_KIND.parse, comma_list(raw)))
    return peers if len(set(peers)) == len(peers) else None


def _read_registries(raw: Any) -> tuple[str, ...] | None:
    """Read URLs, and refuse those with a user or a password, which would show up in errors."""
    urls = tuple(map(str, comma_list(raw)))
    if any("@" in url for url in urls):
        raise Hint(
            "leave out the user and the password: they are keys, `username` and `password_file`"
        )
    if urls == ("memory://",):
        return urls
    read = _with_port(_REGISTRY)
    are_right = all(read(url) == url for url in urls)
    return urls if are_right and len(set(urls)) == len(urls) else None


def _is_token(raw: Any) -> bool:
    return isinstance(raw, str) and re.fullmatch("[!-~]+", raw) is not None


def _read_servers(raw: Any) -> str:
    """Read comma-separated ``host:port``, or ``embedded``."""
    servers = comma_list(raw)
    for server in filter(is_text, servers):
        _refuse_protocol(server)
    if servers == ["embedded"]:
        return "embedded"
    return ",".join(map(_SERVER_KIND.parse, servers))


def _refuse_protocol(server: str) -> None:
    protocol, separator, rest = server.partition("://")
    if not separator:
        return
    address = rest.rpartition("@")[2].rstrip("/")
    hint = f"write {address!r} without {protocol + '://'!r}"
    if protocol.upper() in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        hint += f'; the protocol has its own key: security_protocol = "{protocol.upper()}"'
    raise Hint(hint)


def _with_port(pattern: re.Pattern[str]) -> Callable[[Any], str | None]:
    """Return the reader of texts that match *pattern*. Its first group is a port, or is missing."""

    def read(raw: Any) -> str | None:
        match = pattern.fullmatch(raw.strip()) if isinstance(raw, str) else None
        if match is None:
            return None
        if match[1] is not None and not 0 < int(match[1]) < 65536:
            return None
        return match[0]

    return read


def _read_master(raw: Any) -> str | None:
    written = raw.strip() if isinstance(raw, str) else ""
    if _MASTER.fullmatch(written):
        return written
    word = re.split(r"[\[:/]", written, maxsplit=1)[0]
    rest = written[len(word) :]
    near = did_you_mean(word, ("local", "local-cluster", "spark", "yarn", "k8s"))
    if near is None:
        return None
    example = {"local": "local[*]", "local-cluster": "local-cluster[2,1,1024]"}.get(near, near)
    if near in ("spark", "k8s"):
        # Only the start of a URL, because the rest may hold a password.
        example = f"{near}://..."
    elif _MASTER.fullmatch(near + rest):
        example = near + rest
    raise Hint(f"did you mean {example!r}?")


BOOLEAN: Kind[bool] = Kind(
    "true or false", only(lambda raw: isinstance(raw, bool)), json=schemas.BOOLEAN
)
COUNT = integer(1)
_DURATIONS = 'a duration: "500ms", "5s", "2m", "1h" or seconds as a number'
TIME = Kind(_DURATIONS, parse_duration, show_duration, json=schemas.TIME)
SOME_TIME = Kind(
    f"{_DURATIONS}, above 0",
    lambda raw: parse_duration(raw) or None,
    show_duration,
    json=schemas.SOME_TIME,
)
SIZE = Kind(
    'a size: "64KiB", "1MB" or bytes as a number, at least 1',
    lambda raw: parse_size(raw) or None,
    show_size,
    json=schemas.SIZE,
)
TEXT: Kind[str] = Kind(
    "a string that is not empty", only(is_text), native=(str,), free=True, json=schemas.ANY_TEXT
)
SENT_TEXT: Kind[str] = Kind(
    TEXT.expects, read_sent_text, native=(str,), free=True, json=schemas.ANY_TEXT
)
"""A text that other programs get. That of a path may be any."""
TOPIC: Kind[str] = Kind(
    f"the name of a topic: {TOPIC_RULE}", only(is_topic), native=(str,), json=schemas.TOPIC
)
TOPICS = Kind(
    f"a list of different topics: {TOPIC_RULE}",
    _read_topics,
    list,
    (str, list),
    json=schemas.TOPICS,
)
TOPIC_CONFIG: Kind[str] = Kind(
    "a string, a number, a boolean or a list of strings", _read_topic_config, json=schemas.CONFIG
)
HOSTS = Kind(
    'a list of different host names, without ports: "kafka.example.com"',
    _read_hosts,
    list,
    (str, list),
    json=schemas.HOSTS,
)
_PEER_KIND = Kind('"host:port"', _with_port(_PEER))
PEERS = Kind('a list of different "host:port"', _read_peers, list, (str, list), json=schemas.PEERS)
TOKEN: Kind[str] = Kind(
    "printable ASCII characters without spaces",
    only(_is_token),
    native=(str,),
    free=True,
    json=schemas.TOKEN,
)
HEADER_NAMES = Kind(
    "a list of different header names", _read_names, list, (str, list), json=schemas.NAMES
)
HEADER_VALUES: Kind[tuple[str, ...]] = Kind(
    "the value of a header as a string, or a list of different values, of which it has one",
    _read_header_values,
    lambda values: values[0] if len(values) == 1 else list(values),
    (str, list),
    json=schemas.HEADER_VALUES,
)
CHANNEL_NAMES = Kind(
    "a list of different names of incoming channels",
    _read_names,
    list,
    (str, list),
    json=schemas.NAMES,
)
_URLS = '"http://host:8081" or "https://...", several with commas or as a list, or "memory://"'
REGISTRIES = Kind(_URLS, _read_registries, list, (str, list), json=schemas.REGISTRIES)
OBJECT: Kind[str] = Kind(
    '"module:function"', only(names_an_object), native=(str,), json=schemas.OBJECT
)
_SERVER_KIND = Kind('"host:port"', _with_port(_SERVER))
SERVERS = Kind(
    '"host:port", several with commas or as a list, or "embedded"',
    _read_servers,
    native=(str, list),
    json=schemas.SERVERS,
)
MASTER = Kind(
    'a Spark master: "local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", '
    '"spark://host:7077", "yarn" or "k8s://..."',
    _read_master,
    native=(str,),
    free=True,
    json=schemas.MASTER,
)
REMOTE = Kind(
    'a Spark Connect server: "sc://host" or "sc://host:15002"; its parameters may follow: '
    '"/;use_ssl=true;token=..."',
    _with_port(_REMOTE),
    native=(str,),
    free=True,
    json=schemas.REMOTE,
)
