"""Raw client properties: Kafka's names (librdkafka's too, for TLS and SASL), aiokafka's, and their values. Pure.

Dots, hyphens and underscores are the same in a name, so ``session.timeout.ms`` (Kafka's) and ``session_timeout_ms``
(aiokafka's) are one property. Values come out under aiokafka's keywords, and these for the TLS context that the seam
makes: ``ssl_cafile``, ``ssl_cadata``, ``ssl_certfile``, ``ssl_keyfile``, ``ssl_password``, ``ssl_check_hostname``.
``partition_assignment_strategy`` is a tuple of names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reactive_kafka.config.refused_properties import REFUSED, form
from reactive_kafka.config.values import BOOLEAN, TEXT, Kind, choice, integer

Side = Literal["consumer", "producer"]
BOTH: frozenset[Side] = frozenset(("consumer", "producer"))
CONSUMER: frozenset[Side] = frozenset(("consumer",))
PRODUCER: frozenset[Side] = frozenset(("producer",))


@dataclass(frozen=True, slots=True)
class Property:
    """One raw property.

    Args:
        kafka: Kafka's name, which the docs show; aiokafka's if Kafka has none.
        name: aiokafka's keyword.
        kind: What it may hold; its parsed value is what aiokafka takes.
        sides: Which clients have it.
        also: Further spellings.
        gives: The keywords that come out, if they are not just the name: several for JAAS, none for a mere check.
        expand: Parsed value -> keyword -> value, for all of *gives*.
    """

    kafka: str
    name: str
    kind: Kind[Any]
    sides: frozenset[Side] = BOTH
    also: tuple[str, ...] = ()
    gives: tuple[str, ...] | None = None
    expand: Callable[[Any], Mapping[str, Any]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The keywords that come out."""
        return (self.name,) if self.gives is None else self.gives

    def values(self, parsed: Any) -> Mapping[str, Any]:
        """Keyword -> value, as aiokafka takes them, for a parsed value."""
        return {self.name: parsed} if self.expand is None else self.expand(parsed)


def _checked(expects: str, read: Callable[[Any], Any], **more: Any) -> Kind[Any]:
    """A kind whose reader returns None for what is not allowed."""

    def strict(raw: Any) -> Any:
        if (value := read(raw)) is None:
            raise ValueError("not allowed")
        return value

    return Kind(expects, strict, **more)


_ASSIGNORS = {
    **{name: name for name in ("range", "roundrobin", "sticky")},
    **{f"org.apache.kafka.clients.consumer.{java}Assignor": java.lower() for java in ("Range", "RoundRobin", "Sticky")},
}
_JAAS = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+(?:required|requisite)\s+(.*);\s*",
    re.DOTALL,
)
_JAAS_OPTION = re.compile(r"""\s*(\w+)\s*=\s*("(?:\\.|[^"\\])*"|'[^']*'|[^\s"';]+)""")


def _assignors(raw: Any) -> tuple[str, ...] | None:
    names = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(names, list | tuple) or not names or not all(name in _ASSIGNORS for name in map(str, names)):
        return None
    return tuple(dict.fromkeys(_ASSIGNORS[name] for name in names))


def _acks(raw: Any) -> int | str | None:
    known: dict[str, int | str] = {"0": 0, "1": 1, "-1": "all", "all": "all"}
    return known.get(str(raw)) if isinstance(raw, int | str) and not isinstance(raw, bool) else None


def _jaas(raw: Any) -> dict[str, str] | None:
    """User and password of a Plain or Scram login module."""
    module = _JAAS.fullmatch(raw) if isinstance(raw, str) else None
    if module is None or _JAAS_OPTION.sub("", module[1]).strip():
        return None
    options = {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(module[1])}
    if not options.get("username") or not options.get("password"):
        return None
    return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value


def _pem(raw: Any) -> str | None:
    is_store = isinstance(raw, str) and raw.lower().endswith((".jks", ".p12", ".pfx", ".keystore", ".truststore"))
    return raw if isinstance(raw, str) and raw.strip() and not is_store else None


def _certificates(raw: Any) -> str | None:
    return raw if isinstance(raw, str) and "-----BEGIN CERTIFICATE-----" in raw else None


def _host_check(raw: Any) -> bool | None:
    return {"https": True, "": False}.get(raw) if isinstance(raw, str) else None


def _nothing(_: Any) -> Mapping[str, Any]:
    return {}


def _object_with(method: str) -> Callable[[Any], Any]:
    return lambda raw: raw if callable(getattr(raw, method, None)) else None


_MS, _COUNT = integer(0, unit="milliseconds"), integer(1)
_SOME_MS, _BYTES = integer(1, unit="milliseconds"), integer(1, unit="bytes")
_PEM_FILE = _checked("the path of a PEM file; JKS and PKCS12 stores cannot be read here", _pem, native=(str,))
_ONLY_PEM = _checked('"PEM"; JKS and PKCS12 stores cannot be read here', lambda raw: raw if raw == "PEM" else None)
_ASSIGNOR_KIND = _checked(
    '"range", "roundrobin" or "sticky", or a list of them; rebalances are eager, cooperative ones are not supported',
    _assignors,
    show=list,
    native=(str, list),
)
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_HOST_CHECK = _checked('"https", or "" for no check of the host name', _host_check, native=(str,))
_JAAS_KIND = _checked(
    'a PlainLoginModule or ScramLoginModule with username="..." and password="..."; it is not shown here',
    _jaas,
    native=(str,),
    free=True,
)

PROPERTIES: tuple[Property, ...] = (
    Property("client.id", "client_id", TEXT),
    Property("request.timeout.ms", "request_timeout_ms", _SOME_MS),
    Property("retry.backoff.ms", "retry_backoff_ms", _MS),
    Property("metadata.max.age.ms", "metadata_max_age_ms", _SOME_MS),
    Property("connections.max.idle.ms", "connections_max_idle_ms", _SOME_MS),
    Property("security.protocol", "security_protocol", choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    Property(
        "sasl.mechanism",
        "sasl_mechanism",
        choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"),
        also=("sasl.mechanisms",),
    ),
    Property(
        "sasl.jaas.config",
        "sasl_jaas_config",
        _JAAS_KIND,
        gives=("sasl_plain_username", "sasl_plain_password"),
        expand=dict,
    ),
    Property("sasl.username", "sasl_plain_username", TEXT),
    Property("sasl.password", "sasl_plain_password", TEXT),
    Property("sasl.kerberos.service.name", "sasl_kerberos_service_name", TEXT),
    Property("sasl_kerberos_domain_name", "sasl_kerberos_domain_name", TEXT),
    Property(
        "sasl_oauth_token_provider",
        "sasl_oauth_token_provider",
        _checked("an object with an async method token(), given in code", _object_with("token")),
    ),
    Property(
        "ssl_context",
        "ssl_context",
        _checked("an ssl.SSLContext, given in code", _object_with("wrap_bio")),
    ),
    Property("ssl.truststore.location", "ssl_cafile", _PEM_FILE, also=("ssl.ca.location",)),
    Property("ssl_capath", "ssl_capath", TEXT),
    Property(
        "ssl.truststore.certificates",
        "ssl_cadata",
        _checked("certificates in PEM form", _certificates, native=(str,), free=True),
        also=("ssl.ca.pem",),
    ),
    Property("ssl.truststore.type", "ssl_truststore_type", _ONLY_PEM, gives=(), expand=_nothing),
    Property("ssl.keystore.location", "ssl_certfile", _PEM_FILE, also=("ssl.certificate.location",)),
    Property("ssl.keystore.type", "ssl_keystore_type", _ONLY_PEM, gives=(), expand=_nothing),
    Property("ssl.key.location", "ssl_keyfile", _PEM_FILE),
    Property("ssl.key.password", "ssl_password", TEXT, also=("ssl.keystore.password",)),
    Property(
        "ssl.endpoint.identification.algorithm",
        "ssl_endpoint_identification_algorithm",
        _HOST_CHECK,
        gives=("ssl_check_hostname",),
        expand=lambda check: {"ssl_check_hostname": check},
    ),
    Property("ssl_check_hostname", "ssl_check_hostname", BOOLEAN),
    # consumers
    Property("group.instance.id", "group_instance_id", TEXT, CONSUMER),
    Property("session.timeout.ms", "session_timeout_ms", _SOME_MS, CONSUMER),
    Property("heartbeat.interval.ms", "heartbeat_interval_ms", _SOME_MS, CONSUMER),
    Property("max.poll.interval.ms", "max_poll_interval_ms", _SOME_MS, CONSUMER),
    Property("rebalance.timeout.ms", "rebalance_timeout_ms", _SOME_MS, CONSUMER),
    Property("max.poll.records", "max_poll_records", _COUNT, CONSUMER),
    Property("fetch.min.bytes", "fetch_min_bytes", _BYTES, CONSUMER),
    Property("fetch.max.bytes", "fetch_max_bytes", _BYTES, CONSUMER),
    Property("fetch.max.wait.ms", "fetch_max_wait_ms", _MS, CONSUMER, also=("fetch.wait.max.ms",)),
    Property("max.partition.fetch.bytes", "max_partition_fetch_bytes", _BYTES, CONSUMER),
    Property("isolation.level", "isolation_level", choice("read_uncommitted", "read_committed"), CONSUMER),
    Property("check.crcs", "check_crcs", BOOLEAN, CONSUMER),
    Property("exclude.internal.topics", "exclude_internal_topics", BOOLEAN, CONSUMER),
    Property("client.rack", "client_rack", TEXT, CONSUMER),
    Property("partition.assignment.strategy", "partition_assignment_strategy", _ASSIGNOR_KIND, CONSUMER),
    # producers
    Property("acks", "acks", _checked('0, 1, -1 or "all"', _acks), PRODUCER),
    Property("enable.idempotence", "enable_idempotence", BOOLEAN, PRODUCER),
    Property(
        "compression.type",
        "compression_type",
        choice(*_CODECS),
        PRODUCER,
        gives=("compression_type",),
        expand=lambda codec: {"compression_type": None if codec == "none" else codec},
    ),
    Property("linger.ms", "linger_ms", _MS, PRODUCER),
    Property("batch.size", "max_batch_size", _BYTES, PRODUCER),
    Property("max.request.size", "max_request_size", _BYTES, PRODUCER),
)

_BY_FORM: dict[str, Property] = {
    form(spelling): prop for prop in PROPERTIES for spelling in (prop.name, *prop.also, prop.kafka)
}


def find(name: str) -> Property | None:
    """The property of that name, Kafka's or aiokafka's, or None."""
    return _BY_FORM.get(form(name))


def names_like(name: str) -> list[str]:
    """All names that a misspelt *name* may stand for, in its own style: with dots or with underscores."""
    dotted = "." in name
    return [prop.kafka if dotted else prop.name for prop in PROPERTIES] + (sorted(REFUSED) if dotted else [])


SIDES: dict[str, frozenset[Side]] = {name: prop.sides for prop in PROPERTIES for name in prop.names}
"""aiokafka's keyword -> which clients take it."""
