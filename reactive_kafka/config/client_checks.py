"""Contradictions among the properties of one client: TLS, SASL, the group's times, acks. Pure."""

from __future__ import annotations

import ipaddress
import re

from reactive_kafka.config.rules import Rule, View

GROUP_MS = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 3_000, "rebalance_timeout_ms": 60_000}
"""What the seam to Kafka sets unless the configuration says otherwise."""

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


def _ms(view: View, name: str) -> int:
    return int(view[name] or GROUP_MS[name])


def _mechanism(view: View) -> str:
    return str(view["sasl_mechanism"] or "PLAIN")


def _sends_a_plain_password(view: View) -> bool:
    is_plain = view["security_protocol"] == "SASL_PLAINTEXT" and _mechanism(view) == "PLAIN"
    return is_plain and not view["allow_insecure_sasl"] and not _is_loopback(view["bootstrap_servers"])


def _is_loopback(servers: str) -> bool:
    hosts = [re.sub(r":\d+$", "", server) for server in servers.split(",")]
    return all(host in ("embedded", "localhost") or _is_loopback_address(host.strip("[]")) for host in hosts)


def _is_loopback_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _missing_credentials(view: View) -> list[str]:
    """What SASL needs and was not given; nothing without SASL."""
    if not str(view["security_protocol"]).startswith("SASL_"):
        return []
    mechanism = _mechanism(view)
    needed: tuple[str, ...] = ()
    if mechanism == "OAUTHBEARER":
        needed = ("sasl_oauth_token_provider",)
    elif mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        needed = ("sasl_plain_username", "sasl_plain_password")
    return [name for name in needed if view[name] is None]


def _needs(view: View) -> str:
    given_in_code = ", an object given in code" if _mechanism(view) == "OAUTHBEARER" else ""
    return f"{_mechanism(view)} needs {' and '.join(_missing_credentials(view))}{given_in_code}"


def _given_tls(view: View) -> list[str]:
    return [name for name in _TLS_NAMES if view.setting(name) is not None]


_BOTH = (
    Rule(
        ("security_protocol", "sasl_mechanism", "bootstrap_servers", "allow_insecure_sasl"),
        _sends_a_plain_password,
        "SASL PLAIN without TLS sends the password in clear text: use SASL_SSL, or a SCRAM mechanism, or set "
        "allow_insecure_sasl = true in [kafka]",
    ),
    Rule(("security_protocol", *_SASL_NAMES), _missing_credentials, _needs),
    Rule(
        (*_SASL_NAMES, "security_protocol"),
        lambda view: view.setting("security_protocol") is None,
        "has no effect while security.protocol is PLAINTEXT; set it to SASL_SSL",
    ),
    Rule(
        (*_TLS_NAMES, "security_protocol"),
        lambda view: view.setting("security_protocol") is None,
        "has no effect while security.protocol is PLAINTEXT; set it to SSL or SASL_SSL",
    ),
    Rule(
        ("ssl_context", *_TLS_NAMES),
        lambda view: view.setting("ssl_context") is not None and _given_tls(view),
        lambda view: f"ssl_context holds all TLS settings; leave out {', '.join(_given_tls(view))}",
    ),
    Rule(
        ("ssl_keyfile", "ssl_certfile"),
        lambda view: view.setting("ssl_keyfile") is not None and view.setting("ssl_certfile") is None,
        "a key needs its certificate: set ssl.keystore.location",
    ),
)
CONSUMER_RULES = (
    Rule(
        ("heartbeat_interval_ms", "session_timeout_ms"),
        lambda view: _ms(view, "heartbeat_interval_ms") >= _ms(view, "session_timeout_ms"),
        lambda view: (
            f"a heartbeat every {_ms(view, 'heartbeat_interval_ms')} ms cannot keep up a session of "
            f"{_ms(view, 'session_timeout_ms')} ms; a third of it is usual"
        ),
    ),
    Rule(
        ("revoke_grace", "rebalance_timeout_ms"),
        lambda view: view["revoke_grace"] * 1000 >= _ms(view, "rebalance_timeout_ms"),
        lambda view: (
            f"the group waits {_ms(view, 'rebalance_timeout_ms')} ms for a revocation; raise rebalance.timeout.ms "
            "above revoke_grace"
        ),
    ),
    *_BOTH,
)
PRODUCER_RULES = (
    Rule(
        ("acks", "enable_idempotence"),
        lambda view: view["enable_idempotence"] and view["acks"] in (0, 1),
        'enable.idempotence needs acks = "all"',
    ),
    *_BOTH,
)
LETTER_RULES = (
    Rule(
        ("acks",),
        lambda view: view["acks"] == 0,
        "a record is settled once the broker has its dead letter, and with acks = 0 the broker never says so",
    ),
    *PRODUCER_RULES,
)
"""Of the producer that writes dead letters."""
