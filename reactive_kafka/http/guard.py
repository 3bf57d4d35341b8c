"""Who may ask the endpoints for what: the Host, the Origin and the token of a request. Pure."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from reactive_kafka.config.secrets import revealed
from reactive_kafka.config.settings import HttpSettings

PROBES = frozenset({"/health", "/health/live", "/health/ready", "/health/started"})
"""They are answered whoever asks, and when nothing else is."""
OPEN = PROBES | {"/metrics"}
"""What is asked by machines, which have no token, and may know this one by any name."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that says why there is no other."""

    status: int
    why: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What is refused. Without anything given: whatever could change something.

    A page of somebody else's, in a browser that reaches this server, can make a name of its own
    stand for this address (DNS rebinding), and reads the answers then; the browser sends that name
    in ``Host``. An address cannot be rebound.
    """

    token: str | None = field(default=None, repr=False)
    # Names of this server, besides those of the loopback interface.
    hosts: frozenset[str] = frozenset()
    looks_at_host: bool = False
    # Nobody reaches it from elsewhere.
    is_local: bool = False

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is not answered; None: it is. The names of *headers* are in lower case."""
        host = headers.get("host", "")
        changes = method not in ("GET", "HEAD")
        if (
            self.looks_at_host
            and (self.is_local or path not in OPEN)
            and not self._is_ours(_name(host))
        ):
            return Refusal(
                421, "this is no name of this server; [http] hosts lists those that it has"
            )
        if changes and self.token is None:
            return Refusal(
                405,
                "nothing can be changed here without a token: see [http] token_file",
                _READ_ONLY,
            )
        if changes and not self._is_same(headers.get("origin"), host):
            return Refusal(403, "a page of another origin asks for this")
        if (changes or (path not in OPEN and not self.is_local)) and not self._has_token(headers):
            return Refusal(
                401,
                "this needs the token: Authorization: Bearer ...",
                {"WWW-Authenticate": "Bearer"},
            )
        return None

    def _is_ours(self, name: str) -> bool:
        # No browser leaves the Host out; load balancers do, with HTTP/1.0.
        return (
            not name
            or name in self.hosts
            or name == "localhost"
            or name.endswith(".localhost")
            or _is_address(name)
        )

    def _is_same(self, origin: str | None, host: str) -> bool:
        if origin is None:
            return True
        at = origin.partition("://")[2].lower()
        return bool(at) and (at == host.lower() or _name(at) in self.hosts)

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_given = hmac.compare_digest(given.strip().encode(), revealed(self.token).encode())
        return is_given and scheme.lower() == "bearer"


_READ_ONLY = {"Allow": "GET, HEAD"}


def guard_of(settings: HttpSettings, *, is_mounted: bool) -> Guard:
    """What the settings ask for. Mounted into somebody else's application it has that one's names
    and addresses.
    """
    hosts = {
        *(settings.hosts or ()),
        *(() if _is_address(settings.host) else (settings.host.lower(),)),
    }
    return Guard(
        token=settings.token,
        hosts=frozenset(hosts),
        looks_at_host=not is_mounted,
        is_local=not is_mounted and is_local(settings.host),
    )


def is_local(host: str) -> bool:
    """Whether what listens there is reached from this machine only."""
    return (
        ipaddress.ip_address(host).is_loopback if _is_address(host) else host.lower() == "localhost"
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _name(host: str) -> str:
    """A ``Host`` without its port: a name, or an address without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return (
        (name if port.isdecimal() and ":" not in name else host).strip().lower().removesuffix(".")
    )
