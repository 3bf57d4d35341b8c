"""How a client connects to the brokers of a cluster, and logs in there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from ssl import SSLContext
from typing import Any

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
GSSAPI = "GSSAPI"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, GSSAPI, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """The settings of a client, under the names and with the defaults of aiokafka's.

    Raises:
        ValueError: One of them is not allowed, or another one is missing.
    """

    bootstrap_servers: str | Sequence[str] = "localhost"
    client_id: str = "reactive-kafka"
    request_timeout_ms: float = 40_000
    metadata_max_age_ms: float = 300_000
    retry_backoff_ms: float = 100
    # None: idle connections stay open.
    connections_max_idle_ms: float | None = 540_000
    security_protocol: str = "PLAINTEXT"
    ssl_context: SSLContext | None = None
    sasl_mechanism: str = PLAIN
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    sasl_oauth_token_provider: Any = None

    def __post_init__(self) -> None:
        if self.security_protocol not in PROTOCOLS:
            raise ValueError(
                f"security_protocol = {self.security_protocol!r}: "
                f"it is one of {', '.join(PROTOCOLS)}"
            )
        if self.uses_tls and self.ssl_context is None:
            raise ValueError(f"security_protocol = {self.security_protocol!r} needs an ssl_context")
        if self.uses_sasl:
            self._check_login()

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def sends_password_in_the_clear(self) -> bool:
        return self.uses_sasl and not self.uses_tls and self.sasl_mechanism == PLAIN

    @property
    def request_timeout_s(self) -> float:
        return self.request_timeout_ms / 1000

    def _check_login(self) -> None:
        mechanism = self.sasl_mechanism
        if mechanism not in MECHANISMS:
            raise ValueError(
                f"sasl_mechanism = {mechanism!r}: it is one of {', '.join(MECHANISMS)}"
            )
        if mechanism == GSSAPI:
            if find_spec("gssapi") is None:
                raise ValueError(f"gssapi library required for sasl_mechanism = {mechanism!r}")
        elif mechanism == OAUTHBEARER:
            if self.sasl_oauth_token_provider is None:
                raise ValueError(
                    f"sasl_mechanism = {mechanism!r} needs a sasl_oauth_token_provider"
                )
        elif self.sasl_plain_username is None or self.sasl_plain_password is None:
            raise ValueError(
                f"sasl_mechanism = {mechanism!r} needs sasl_plain_username and sasl_plain_password"
            )
