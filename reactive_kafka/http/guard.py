"""Decides whether a request is answered, by its Host, its Origin and its token."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from reactive_kafka.config.secrets import revealed
from reactive_kafka.config.settings import HttpSettings
from reactive_kafka.http.token_file import TokenFile

PROBES = frozenset({"/health", "/health/live", "/health/ready", "/health/started"})
"""They are answered to everyone, and also when all connections are taken."""
STATIC = "/static/"
"""The beginning of the paths of the page's script, style and icons, which hold no facts. They need
no token: a page that asks for the token needs them.
"""
OPEN = PROBES | {"/metrics"}
"""Paths for machines, which have no token and may use any name for this server."""
_DEAD_LETTERS = "/api/dlq/"
"""The beginning of the paths of dead letters. Reading them needs the token even on a server that
listens on loopback only: letters hold keys and values, and reading them puts load on the broker.
"""
_ACTIONS = ("/api/channels/", _DEAD_LETTERS, "/api/log-level")
"""How the paths of actions begin."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that says why a request is refused."""

    status: int
    why: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The rules for requests. The default refuses every request that could change something.

    Why it checks ``Host``: with DNS rebinding, a page of an attacker in a user's browser lets a
    name of its own point to this address, and can then read the answers. The browser sends that
    name in ``Host``. An address cannot be rebound.
    """

    token: str | None = field(default=None, repr=False)
    # Names of this server, in addition to localhost.
    hosts: frozenset[str] = frozenset()
    checks_host: bool = False
    # It listens on the loopback interface only.
    is_local: bool = False

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request is refused, or None. The names of *headers* are in lower case."""
        host = headers.get("host", "")
        changes = method not in ("GET", "HEAD")
        is_open = path in OPEN
        needs_own_name = self.checks_host and (self.is_local or not is_open)
        if needs_own_name and not self._is_own_name(_name(host)):
            return Refusal(
                421, "this Host is not a name of this server; list its names in [http] hosts"
            )
        reads_letters = path.startswith(_DEAD_LETTERS)
        is_action = method == "POST" and path.startswith(_ACTIONS)
        if self.token is None and (is_action or reads_letters):
            return Refusal(
                404,
                "actions and dead letters need a token, and there is none: set [http] token_file",
            )
        if changes and self.token is None:
            return Refusal(
                405,
                "nothing can be changed here without a token: see [http] token_file",
                _READ_ONLY,
            )
        if changes and not self._is_own_origin(headers.get("origin"), host):
            return Refusal(403, "a page of another origin sent this request")
        is_free = is_open or self.is_local or path.startswith(STATIC)
        needs_token = changes or reads_letters or not is_free
        if needs_token and not self._has_token(headers):
            return Refusal(
                401,
                "this needs the token: Authorization: Bearer ...",
                {"WWW-Authenticate": "Bearer"},
            )
        return None

    def _is_own_name(self, name: str) -> bool:
        if not name:
            # Load balancers with HTTP/1.0 send no Host. Browsers, which could attack, always do.
            return True
        if name in self.hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        return _is_address(name)

    def _is_own_origin(self, origin: str | None, host: str) -> bool:
        if origin is None:
            return True
        origin_host = origin.partition("://")[2].lower()
        if not origin_host:
            return False
        return origin_host == host.lower() or _name(origin_host) in self.hosts

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        if self.token is None:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(token.strip().encode(), revealed(self.token).encode())
        return is_right and scheme.lower() == "bearer"


_READ_ONLY = {"Allow": "GET, HEAD"}


class CurrentGuard:
    """Returns the guard for each request, as the settings and the token are at the moment.

    Args:
        settings: Returns the settings; None: nothing is configured yet.
        is_mounted: Our endpoints are mounted into another application.
    """

    def __init__(self, settings: Callable[[], HttpSettings | None], *, is_mounted: bool) -> None:
        self._settings = settings
        self._is_mounted = is_mounted
        # The settings that the token file belongs to.
        self._seen: HttpSettings | None = None
        self._token_file = TokenFile(None)

    def __call__(self) -> Guard:
        """Return the guard."""
        settings = self._settings()
        if settings is None:
            return Guard()
        if settings is not self._seen:
            self._seen = settings
            self._token_file = TokenFile(settings.token)
        guard = guard_of(settings, is_mounted=self._is_mounted)
        return replace(guard, token=self._token_file.token)


def guard_of(settings: HttpSettings, *, is_mounted: bool) -> Guard:
    """Return the guard that the settings describe.

    If our endpoints are mounted into another application, its names and addresses count, which we
    do not know. So ``Host`` is not checked then.
    """
    hosts = set(settings.hosts or ())
    if not _is_address(settings.host):
        hosts.add(settings.host.lower())
    return Guard(
        token=settings.token,
        hosts=frozenset(hosts),
        checks_host=not is_mounted,
        is_local=not is_mounted and is_local(settings.host),
    )


def is_local(host: str) -> bool:
    """True if a server on this host can be reached from this machine only."""
    if _is_address(host):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _name(host: str) -> str:
    """Return a ``Host`` without its port: a name, or an address without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    # With more than one colon, it is an IPv6 address without brackets and without a port.
    has_port = port.isdecimal() and ":" not in name
    return (name if has_port else host).strip().lower().removesuffix(".")
