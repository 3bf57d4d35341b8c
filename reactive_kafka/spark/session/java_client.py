"""Translates a channel's client properties into Spark's options for Kafka's Java clients. Pure.

Callers pass the content of PEM files. Executors may run on other machines, so certificates and keys
are sent as text, never as the path of a file.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reactive_kafka.config.kinds import INT32_MAX
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.session.conf import spelled

_CONNECTION = (
    "security_protocol",
    "request_timeout_ms",
    "retry_backoff_ms",
    "metadata_max_age_ms",
    "connections_max_idle_ms",
)


def _dotted(*names: str) -> dict[str, str]:
    return {name: name.replace("_", ".") for name in names}


_READER: Mapping[str, str] = _dotted(
    *_CONNECTION,
    "max_poll_records",
    "fetch_min_bytes",
    "fetch_max_bytes",
    "fetch_max_wait_ms",
    "max_partition_fetch_bytes",
    "check_crcs",
    "client_rack",
)
_WRITER: Mapping[str, str] = {
    **_dotted(
        *_CONNECTION,
        "acks",
        "enable_idempotence",
        "compression_type",
        "linger_ms",
        "max_request_size",
    ),
    "max_batch_size": "batch.size",
}
# Java's default.
_REQUEST_TIMEOUT_MS = 30_000

OURS_ALONE = frozenset(
    {
        # It is passed separately.
        "bootstrap_servers",
        # The Java clients of one process must not share an id.
        "client_id",
        "group_instance_id",
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "rebalance_timeout_ms",
        "group_protocol",
        "assignor",
        "assignors",
        "exclude_internal_topics",
        # No transaction writes what executors send.
        "transaction_timeout_ms",
    }
)
"""Properties that are left out. Most are for members of a group, and executors join no group."""

_TRANSLATED = frozenset(
    {
        "isolation_level",
        "sasl_mechanism",
        "sasl_plain_username",
        "sasl_plain_password",
        "ssl_cafile",
        "ssl_cadata",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_password",
        "ssl_check_hostname",
    }
)
_NO_TICKET = "executors have no Kerberos ticket of ours: use SCRAM or TLS"
_REFUSED: Mapping[str, str] = {
    "sasl_oauth_token_provider": (
        "executors cannot ask a Python object for tokens: use SCRAM or TLS"
    ),
    "sasl_kerberos_service_name": _NO_TICKET,
    "sasl_kerberos_domain_name": _NO_TICKET,
    "ssl_context": (
        "executors cannot use a Python object: name PEM files in ssl_cafile, ssl_certfile and"
        " ssl_keyfile"
    ),
    "ssl_capath": (
        "Java reads no folder of certificates: put them into one PEM file and name it in ssl_cafile"
    ),
}
_LOGIN_MODULE = "org.apache.kafka.common.security"
_MECHANISMS: Mapping[str, str] = {
    "PLAIN": f"{_LOGIN_MODULE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_LOGIN_MODULE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_LOGIN_MODULE}.scram.ScramLoginModule",
}
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(
    r"-----BEGIN (?P<kind>[A-Z ]*)PRIVATE KEY-----.+?-----END (?P=kind)PRIVATE KEY-----", re.DOTALL
)
# The object identifier of openssl's default encryption, as it appears in a key.
_PBES2 = bytes.fromhex("06092a864886f70d01050d")


@dataclass(frozen=True, slots=True)
class JavaClient:
    """The client properties of a channel, for Java, and how errors name them."""

    # aiokafka's name -> value.
    properties: Mapping[str, Any]
    # (name, value) -> where it is set, and what needs it in Java.
    place: Callable[[str, object], str]
    # What the user may do instead, for the end of a reason.
    instead: str
    # aiokafka's name -> Java's, of properties with the same meaning in both.
    passed: Mapping[str, str]

    def options(self, read: Callable[[str], str]) -> dict[str, str]:
        """Return the properties under Java's names. They contain secrets: never log them.

        Args:
            read: Returns the text of a PEM file, or raises OSError.

        Raises:
            ConfigError: A property has no equivalent in Java's client.
        """
        refusals = [self._refusal(name) for name in self.properties]
        problems = [problem for problem in refusals if problem is not None]
        if problems:
            raise ConfigError(*problems)
        java = {
            self.passed[name]: spelled(value)
            for name, value in self.properties.items()
            if name in self.passed
        }
        protocol = str(self.properties.get("security_protocol", "PLAINTEXT"))
        if protocol.startswith("SASL_"):
            java.update(_sasl(self.properties))
        if protocol.endswith("SSL"):
            java.update(_tls(self, read))
        return java

    def problem(self, name: str, reason: str) -> str:
        """Return the error text about one property."""
        return f"{self.place(name, self.properties[name])}: {reason}"

    def _refusal(self, name: str) -> str | None:
        if name == "sasl_mechanism" and self.properties[name] not in _MECHANISMS:
            reason = (
                f"executors log in with {', '.join(_MECHANISMS)} only: use one of them,"
                f" {self.instead}"
            )
        elif name in self.passed or name in OURS_ALONE | _TRANSLATED:
            return None
        elif name in _REFUSED:
            reason = f"{_REFUSED[name]}, {self.instead}"
        else:
            reason = f"it cannot be translated for executors: leave it out, {self.instead}"
        return self.problem(name, reason)


def kafka_options(settings: IncomingSettings, read: Callable[[str], str]) -> dict[str, str]:
    """Return the ``kafka.*`` options for executors that read an incoming channel.

    They lack the addresses of the brokers. Properties of a group member are left out, because Spark
    would refuse them. See :meth:`JavaClient.options`.
    """
    client = JavaClient(
        settings.client,
        lambda name, value: f'{settings.place(name, value)}: mode = "ranges"',
        'or use mode = "records", which reads with this process\'s own client',
        _READER,
    )
    isolation = str(settings.client.get("isolation_level", "read_uncommitted"))
    return _as_options({"isolation.level": isolation, **client.options(read)})


def sink_options(
    settings: OutgoingSettings, who: str, read: Callable[[str], str]
) -> dict[str, str]:
    """Return the ``kafka.*`` options for executors that write to an outgoing channel.

    They lack the addresses of the brokers. A record waits for the broker's confirmation as long as
    one that the channel sends itself. See :meth:`JavaClient.options`.

    Args:
        settings: The settings of the channel.
        who: The call that sends, for errors.
        read: Returns the text of a PEM file, or raises OSError.
    """
    client = JavaClient(
        settings.client,
        lambda name, value: f"{who}: {name} = {value!r}",
        "or send from a handler, with this process's own client",
        _WRITER,
    )
    java = client.options(read)
    linger_ms = int(java.setdefault("linger.ms", str(int(settings.linger_s * 1000))))
    request_ms = int(java.get("request.timeout.ms", _REQUEST_TIMEOUT_MS))
    send_ms = int(settings.send_timeout_s * 1000)
    java["max.block.ms"] = str(send_ms)
    # Java refuses less, and more than its int holds.
    java["delivery.timeout.ms"] = str(min(max(send_ms, request_ms + linger_ms), INT32_MAX))
    return _as_options(java)


def _as_options(java: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in java.items()}


def _sasl(properties: Mapping[str, Any]) -> dict[str, str]:
    mechanism = str(properties.get("sasl_mechanism", "PLAIN"))
    user = _quoted(spelled(properties.get("sasl_plain_username", "")))
    password = _quoted(spelled(properties.get("sasl_plain_password", "")))
    login = f"{_MECHANISMS[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _quoted(text: str) -> str:
    """Quote *text* for JAAS, where a string would end at a line break.

    Source: java.io.StreamTokenizer.
    """
    for char, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(char, escaped)
    return f'"{text}"'


def _tls(client: JavaClient, read: Callable[[str], str]) -> dict[str, str]:
    java: dict[str, str] = {}
    trusted = _CERTIFICATE.findall(str(client.properties.get("ssl_cadata", "")))
    if "ssl_cafile" in client.properties:
        trusted += _certificates(client, "ssl_cafile", read)
    if trusted:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.certificates"] = "\n".join(trusted)
    if "ssl_certfile" in client.properties:
        java.update(_key_store(client, read))
    if not client.properties.get("ssl_check_hostname", True):
        java["ssl.endpoint.identification.algorithm"] = ""
    return java


def _key_store(client: JavaClient, read: Callable[[str], str]) -> dict[str, str]:
    chain = "\n".join(_certificates(client, "ssl_certfile", read))
    key_name = "ssl_keyfile" if "ssl_keyfile" in client.properties else "ssl_certfile"
    key = _KEY.search(_pem(client, key_name, read))
    if key is None:
        raise ConfigError(client.problem(key_name, "the file holds no private key in PEM form"))
    if key["kind"] not in ("", "ENCRYPTED ") or "Proc-Type:" in key[0]:
        make = "openssl pkcs8 -topk8 -in KEY -out NEW"
        raise ConfigError(
            client.problem(key_name, f"Java reads keys in PKCS #8 form only: make one with {make}")
        )
    store = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key[0],
    }
    if not key["kind"]:
        # The key is not encrypted. Java refuses a password for it.
        return store
    if "ssl_password" not in client.properties:
        raise ConfigError(client.problem(key_name, "the key is encrypted: set ssl_password"))
    if _PBES2 in a2b_base64("".join(key[0].splitlines()[1:-1])):
        make = "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in KEY -out NEW"
        reason = (
            f"Java reads no key that is encrypted by PBES2: make one with {make}, or one that is"
            " not encrypted"
        )
        raise ConfigError(client.problem(key_name, reason))
    return {**store, "ssl.key.password": spelled(client.properties["ssl_password"])}


def _certificates(client: JavaClient, name: str, read: Callable[[str], str]) -> list[str]:
    found: list[str] = _CERTIFICATE.findall(_pem(client, name, read))
    if not found:
        raise ConfigError(client.problem(name, "the file holds no certificate in PEM form"))
    return found


def _pem(client: JavaClient, name: str, read: Callable[[str], str]) -> str:
    try:
        return read(str(client.properties[name]))
    except OSError as error:
        raise ConfigError(client.problem(name, f"the file cannot be read: {error}")) from error
