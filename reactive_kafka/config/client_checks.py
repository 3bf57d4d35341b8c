"""Contradictions among the properties of one client: TLS, SASL, the group's times, acks. Pure."""

from __future__ import annotations

import ipaddress
import re

from reactive_kafka.config.rules import Rule, View

SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 3_000
REBALANCE_TIMEOUT_MS = 60_000
"""What the seam to Kafka sets where the configuration says nothing."""


def _heartbeats_within_the_session(view: View) -> str | None:
    session = view.value("session_timeout_ms") or SESSION_TIMEOUT_MS
    heartbeat = view.value("heartbeat_interval_ms") or HEARTBEAT_INTERVAL_MS
    if heartbeat >= session:
        return f"heartbeats each {heartbeat} ms cannot hold a session of {session} ms; a third of it is usual"
    return None


def _grace_within_the_rebalance(view: View) -> str | None:
    limit = view.value("rebalance_timeout_ms") or REBALANCE_TIMEOUT_MS
    if view.value("revoke_grace") * 1000 >= limit:
        return f"the group waits {limit} ms for a revocation; raise rebalance.timeout.ms above revoke_grace"
    return None


def _letters_are_acked(view: View) -> str | None:
    if view.value("acks") == 0:
        return "a record is settled once the broker has its dead letter, and with acks = 0 the broker never says so"
    return None


def _idempotence_needs_all_acks(view: View) -> str | None:
    if view.value("enable_idempotence") and view.value("acks") in (0, 1):
        return 'enable.idempotence needs acks = "all"'
    return None


def _plain_needs_tls(view: View) -> str | None:
    if view.value("security_protocol") != "SASL_PLAINTEXT" or (view.value("sasl_mechanism") or "PLAIN") != "PLAIN":
        return None
    if view.value("allow_insecure_sasl") or _is_loopback(view.value("bootstrap_servers")):
        return None
    return (
        "SASL PLAIN without TLS sends the password as it is: use SASL_SSL, or a SCRAM mechanism, "
        "or set allow_insecure_sasl = true in [kafka]"
    )


def _is_loopback(servers: str) -> bool:
    hosts = [re.sub(r":\d+$", "", server) for server in servers.split(",")]
    return all(host in ("embedded", "localhost") or _is_loopback_address(host.strip("[]")) for host in hosts)


def _is_loopback_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sasl_has_credentials(view: View) -> str | None:
    if not str(view.value("security_protocol")).startswith("SASL_"):
        return None
    mechanism = view.value("sasl_mechanism") or "PLAIN"
    if mechanism == "OAUTHBEARER" and view.value("sasl_oauth_token_provider") is None:
        return "OAUTHBEARER needs sasl_oauth_token_provider, an object given in code"
    is_password = mechanism == "PLAIN" or mechanism.startswith("SCRAM-")
    missing = [name for name in ("sasl_plain_username", "sasl_plain_password") if view.value(name) is None]
    return f"{mechanism} needs {' and '.join(missing)}" if is_password and missing else None


_SASL_NAMES = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider")
_TLS_NAMES = (
    "ssl_cafile",
    "ssl_capath",
    "ssl_cadata",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
)


def _credentials_are_used(view: View) -> str | None:
    if view.setting("security_protocol") is None:
        return "has no effect while security.protocol is PLAINTEXT; set it to SASL_SSL"
    return None


def _tls_is_used(view: View) -> str | None:
    if view.setting("security_protocol") is None:
        return "has no effect while security.protocol is PLAINTEXT; set it to SSL or SASL_SSL"
    return None


def _one_tls_context(view: View) -> str | None:
    extra = [name for name in _TLS_NAMES if view.setting(name) is not None]
    if view.setting("ssl_context") is not None and extra:
        return f"ssl_context says it all; leave out {', '.join(extra)}"
    return None


def _key_has_a_certificate(view: View) -> str | None:
    if view.setting("ssl_keyfile") is not None and view.setting("ssl_certfile") is None:
        return "a key needs its certificate: set ssl.keystore.location"
    return None


_BOTH = (
    Rule(
        ("security_protocol", "sasl_mechanism", "bootstrap_servers", "allow_insecure_sasl"),
        _plain_needs_tls,
    ),
    Rule(("security_protocol", *_SASL_NAMES), _sasl_has_credentials),
    Rule((*_SASL_NAMES, "security_protocol"), _credentials_are_used),
    Rule((*_TLS_NAMES, "security_protocol"), _tls_is_used),
    Rule(("ssl_context", *_TLS_NAMES), _one_tls_context),
    Rule(("ssl_keyfile", "ssl_certfile"), _key_has_a_certificate),
)
CONSUMER_RULES = (
    Rule(("heartbeat_interval_ms", "session_timeout_ms"), _heartbeats_within_the_session),
    Rule(("revoke_grace", "rebalance_timeout_ms"), _grace_within_the_rebalance),
    *_BOTH,
)
PRODUCER_RULES = (Rule(("acks", "enable_idempotence"), _idempotence_needs_all_acks), *_BOTH)
LETTER_RULES = (Rule(("acks",), _letters_are_acked), *PRODUCER_RULES)
"""Of the producer that writes dead letters."""
