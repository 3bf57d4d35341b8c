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
        kind: What it may hold; its parsed value is what aiokafka takes.
        sides: Which clients have it.
        also: Further spellings.
        keyword: aiokafka's name, if it is not Kafka's with underscores.
        gives: The keywords that come out, if they are not just the name: several for JAAS, none for a mere check.
        expand: Parsed value -> keyword -> value, for all of *gives*; default: the value under each.
    """

    kafka: str
    kind: Kind[Any]
    sides: frozenset[Side] = BOTH
    also: tuple[str, ...] = ()
    keyword: str = ""
    gives: tuple[str, ...] | None = None
    expand: Callable[[Any], Mapping[str, Any]] | None = None

    @property
    def name(self) -> str:
        """aiokafka's name."""
        return self.keyword or form(self.kafka)

    @property
    def names(self) -> tuple[str, ...]:
        """The keywords that come out."""
        return (self.name,) if self.gives is None else self.gives

    def values(self, parsed: Any) -> Mapping[str, Any]:
        """Keyword -> value, as aiokafka takes them, for a parsed value."""
        return dict.fromkeys(self.names, parsed) if self.expand is None else self.expand(parsed)


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


def _object_with(method: str) -> Callable[[Any], Any]:
    return lambda raw: raw if callable(getattr(raw, method, None)) else None


_MS, _COUNT = integer(0, unit="milliseconds"), integer(1)
_SOME_MS, _BYTES = integer(1, unit="milliseconds"), integer(1, unit="bytes")
_PEM_FILE = Kind("the path of a PEM file; JKS and PKCS12 stores cannot be read here", _pem, native=(str,))
_ONLY_PEM = Kind('"PEM"; JKS and PKCS12 stores cannot be read here', lambda raw: raw if raw == "PEM" else None)
_ASSIGNOR_KIND = Kind(
    '"range", "roundrobin" or "sticky", or a list of them; rebalances are eager, cooperative ones are not supported',
    _assignors,
    show=list,
    native=(str, list),
)
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_HOST_CHECK = Kind('"https", or "" for no check of the host name', _host_check, native=(str,))
_JAAS_KIND = Kind(
    'a PlainLoginModule or ScramLoginModule with username="..." and password="..."; it is not shown here',
    _jaas,
    native=(str,),
    free=True,
)

PROPERTIES: tuple[Property, ...] = (
    Property("client.id", TEXT),
    Property("request.timeout.ms", _SOME_MS),
    Property("retry.backoff.ms", _MS),
    Property("metadata.max.age.ms", _SOME_MS),
    Property("connections.max.idle.ms", _SOME_MS),
    Property("security.protocol", choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    Property(
        "sasl.mechanism",
        choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"),
        also=("sasl.mechanisms",),
    ),
    Property("sasl.jaas.config", _JAAS_KIND, gives=("sasl_plain_username", "sasl_plain_password"), expand=dict),
    Property("sasl.username", TEXT, keyword="sasl_plain_username"),
    Property("sasl.password", TEXT, keyword="sasl_plain_password"),
    Property("sasl.kerberos.service.name", TEXT),
    Property("sasl_kerberos_domain_name", TEXT),
    Property(
        "sasl_oauth_token_provider",
        Kind("an object with an async method token(), given in code", _object_with("token")),
    ),
    Property("ssl_context", Kind("an ssl.SSLContext, given in code", _object_with("wrap_bio"))),
    Property("ssl.truststore.location", _PEM_FILE, also=("ssl.ca.location",), keyword="ssl_cafile"),
    Property("ssl_capath", TEXT),
    Property(
        "ssl.truststore.certificates",
        Kind("certificates in PEM form", _certificates, native=(str,), free=True),
        also=("ssl.ca.pem",),
        keyword="ssl_cadata",
    ),
    Property("ssl.truststore.type", _ONLY_PEM, gives=()),
    Property("ssl.keystore.location", _PEM_FILE, also=("ssl.certificate.location",), keyword="ssl_certfile"),
    Property("ssl.keystore.type", _ONLY_PEM, gives=()),
    Property("ssl.key.location", _PEM_FILE, keyword="ssl_keyfile"),
    Property("ssl.key.password", TEXT, also=("ssl.keystore.password",), keyword="ssl_password"),
    Property("ssl.endpoint.identification.algorithm", _HOST_CHECK, gives=("ssl_check_hostname",)),
    Property("ssl_check_hostname", BOOLEAN),
    # consumers
    Property("group.instance.id", TEXT, CONSUMER),
    Property("session.timeout.ms", _SOME_MS, CONSUMER),
    Property("heartbeat.interval.ms", _SOME_MS, CONSUMER),
    Property("max.poll.interval.ms", _SOME_MS, CONSUMER),
    Property("rebalance.timeout.ms", _SOME_MS, CONSUMER),
    Property("max.poll.records", _COUNT, CONSUMER),
    Property("fetch.min.bytes", _BYTES, CONSUMER),
    Property("fetch.max.bytes", _BYTES, CONSUMER),
    Property("fetch.max.wait.ms", _MS, CONSUMER, also=("fetch.wait.max.ms",)),
    Property("max.partition.fetch.bytes", _BYTES, CONSUMER),
    Property("isolation.level", choice("read_uncommitted", "read_committed"), CONSUMER),
    Property("check.crcs", BOOLEAN, CONSUMER),
    Property("exclude.internal.topics", BOOLEAN, CONSUMER),
    Property("client.rack", TEXT, CONSUMER),
    Property("partition.assignment.strategy", _ASSIGNOR_KIND, CONSUMER),
    # producers
    Property("acks", Kind('0, 1, -1 or "all"', _acks), PRODUCER),
    Property("enable.idempotence", BOOLEAN, PRODUCER),
    Property(
        "compression.type",
        choice(*_CODECS),
        PRODUCER,
        gives=("compression_type",),
        expand=lambda codec: {"compression_type": None if codec == "none" else codec},
    ),
    Property("linger.ms", _MS, PRODUCER),
    Property("batch.size", _BYTES, PRODUCER, keyword="max_batch_size"),
    Property("max.request.size", _BYTES, PRODUCER),
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
