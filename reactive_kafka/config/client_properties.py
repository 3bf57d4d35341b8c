"""Raw client properties: their names and values, as Kafka and aiokafka have them. Pure.

Dots, hyphens and underscores are the same in a name, so ``session.timeout.ms`` (Kafka's) and
``session_timeout_ms`` (aiokafka's) are one property. For TLS and SASL librdkafka's names are known,
too. Properties without an equivalent in aiokafka are refused.

The results are keywords of aiokafka, and these for the TLS context that ``broker/`` makes:
``ssl_cafile``, ``ssl_cadata``, ``ssl_certfile``, ``ssl_keyfile``, ``ssl_password``,
``ssl_check_hostname``. ``assignors`` is a tuple of names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reactive_kafka.config.json_schema import value_schemas as schemas
from reactive_kafka.config.kinds import (
    BOOLEAN,
    COUNT,
    SENT_TEXT,
    TEXT,
    Kind,
    choice,
    comma_list,
    integer,
    is_text,
    only,
)

Side = Literal["consumer", "producer"]
BOTH: frozenset[Side] = frozenset(("consumer", "producer"))
CONSUMER: frozenset[Side] = frozenset(("consumer",))
PRODUCER: frozenset[Side] = frozenset(("producer",))


def form(name: str) -> str:
    """Return the name with underscores as its only separator, for looking it up."""
    return name.replace(".", "_").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Property:
    """One raw property."""

    # Kafka's name, which the docs show. aiokafka's, if Kafka has none.
    kafka: str
    # Parses the value into what aiokafka takes.
    kind: Kind[Any]
    sides: frozenset[Side] = BOTH
    # Further spellings.
    also: tuple[str, ...] = ()
    # aiokafka's name, if it is not Kafka's with underscores.
    keyword: str = ""
    # The keywords that the property sets, if not just its name: several for JAAS, none for a
    # property that is only checked.
    gives: tuple[str, ...] | None = None
    # Turns the parsed value into keyword -> value. None: each keyword gets the parsed value.
    expand: Callable[[Any], Mapping[str, Any]] | None = None

    @property
    def name(self) -> str:
        """aiokafka's name."""
        return self.keyword or form(self.kafka)

    @property
    def names(self) -> tuple[str, ...]:
        """The keywords of aiokafka that the property sets."""
        return (self.name,) if self.gives is None else self.gives

    def values(self, parsed: Any) -> Mapping[str, Any]:
        """Return keyword -> value for a parsed value, as aiokafka takes them."""
        if self.expand is not None:
            return self.expand(parsed)
        return dict.fromkeys(self.names, parsed)


_ASSIGNORS = {
    **{name: name for name in ("range", "roundrobin", "sticky", "cooperative-sticky")},
    **{
        f"org.apache.kafka.clients.consumer.{java}Assignor": name
        for java, name in (
            ("Range", "range"),
            ("RoundRobin", "roundrobin"),
            ("Sticky", "sticky"),
            ("CooperativeSticky", "cooperative-sticky"),
        )
    },
}
_ACKS: dict[str, int | str] = {"0": 0, "1": 1, "-1": "all", "all": "all"}
_JAAS = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule"
    r"\s+(?:required|requisite)\s+(.*);\s*",
    re.DOTALL,
)
_JAAS_OPTION = re.compile(r"""\s*(\w+)\s*=\s*("(?:\\.|[^"\\])*"|'[^']*'|[^\s"';]+)""")
_OWN_ASSIGNOR = re.compile(r"[\w.]+:[\w.]+")
_JAVA_STORES = (".jks", ".p12", ".pfx", ".keystore", ".truststore")


def _assignors(raw: Any) -> tuple[str, ...] | None:
    """Return the names of assignors. An object of the user's own is loaded when the group is
    joined.
    """
    names = [_ASSIGNORS.get(str(name), str(name)) for name in comma_list(raw)]
    is_known = [name in _ASSIGNORS or _OWN_ASSIGNOR.fullmatch(name) for name in names]
    return tuple(dict.fromkeys(names)) if names and all(is_known) else None


def _jaas(raw: Any) -> dict[str, str] | None:
    """Return the user and the password of a Plain or Scram login module."""
    module = _JAAS.fullmatch(raw) if isinstance(raw, str) else None
    if module is None or _JAAS_OPTION.sub("", module[1]).strip():
        return None
    options = {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(module[1])}
    if not options.get("username") or not options.get("password"):
        return None
    return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1])


def _object_with(method: str, expects: str) -> Kind[Any]:
    return Kind(
        f"{expects}, given in code",
        only(lambda raw: callable(getattr(raw, method, None))),
        json=False,
    )


_MS = integer(0, unit="milliseconds")
_SOME_MS = integer(1, unit="milliseconds")
_BYTES = integer(1, unit="bytes")
_PEM_FILE = Kind(
    "the path of a PEM file; JKS and PKCS12 stores cannot be read here",
    only(lambda raw: is_text(raw) and not raw.lower().endswith(_JAVA_STORES)),
    native=(str,),
    json=schemas.without_ending(_JAVA_STORES),
)
_CERTIFICATES = Kind(
    "certificates in PEM form",
    only(lambda raw: isinstance(raw, str) and "-----BEGIN CERTIFICATE-----" in raw),
    native=(str,),
    free=True,
    json={"type": "string", "pattern": "-----BEGIN CERTIFICATE-----"},
)
_PEM = schemas.one_of(("PEM",))
_ONLY_PEM = Kind(
    '"PEM"; JKS and PKCS12 stores cannot be read here', only(lambda raw: raw == "PEM"), json=_PEM
)
_ASSIGNOR_KIND = Kind(
    '"range", "roundrobin", "sticky", "cooperative-sticky" or "module:object", or a list of them; '
    'only the list ["cooperative-sticky"] makes rebalances cooperative',
    _assignors,
    show=list,
    native=(str, list),
    json=schemas.items(
        f"({'|'.join(map(re.escape, _ASSIGNORS))}|{_OWN_ASSIGNOR.pattern})", is_set=False
    ),
)
_HOST_CHECK = Kind(
    '"https", or "" for no check of the host name',
    lambda raw: {"https": True, "": False}.get(raw) if isinstance(raw, str) else None,
    native=(str,),
    json=schemas.one_of(("https", "")),
)
_JAAS_KIND = Kind(
    'a PlainLoginModule or ScramLoginModule with username="..." and password="..."; it is not '
    "shown "
    "here",
    _jaas,
    native=(str,),
    free=True,
    json={"type": "string", "pattern": "LoginModule"},
)
_ACKS_KIND = Kind(
    '0, 1, -1 or "all"',
    lambda raw: _ACKS.get(str(raw)) if isinstance(raw, int | str) else None,
    json=schemas.one_of((*_ACKS, 0, 1, -1)),
)

PROPERTIES: tuple[Property, ...] = (
    Property("client.id", SENT_TEXT),
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
    Property(
        "sasl.jaas.config",
        _JAAS_KIND,
        gives=("sasl_plain_username", "sasl_plain_password"),
        expand=dict,
    ),
    Property("sasl.username", SENT_TEXT, keyword="sasl_plain_username"),
    Property("sasl.password", SENT_TEXT, keyword="sasl_plain_password"),
    Property("sasl.kerberos.service.name", SENT_TEXT),
    Property("sasl_kerberos_domain_name", SENT_TEXT),
    Property(
        "sasl_oauth_token_provider", _object_with("token", "an object with an async method token()")
    ),
    Property("ssl_context", _object_with("wrap_bio", "an ssl.SSLContext")),
    Property("ssl.truststore.location", _PEM_FILE, also=("ssl.ca.location",), keyword="ssl_cafile"),
    Property("ssl_capath", TEXT),
    Property(
        "ssl.truststore.certificates", _CERTIFICATES, also=("ssl.ca.pem",), keyword="ssl_cadata"
    ),
    Property("ssl.truststore.type", _ONLY_PEM, gives=()),
    Property(
        "ssl.keystore.location",
        _PEM_FILE,
        also=("ssl.certificate.location",),
        keyword="ssl_certfile",
    ),
    Property("ssl.keystore.type", _ONLY_PEM, gives=()),
    Property("ssl.key.location", _PEM_FILE, keyword="ssl_keyfile"),
    Property("ssl.key.password", TEXT, also=("ssl.keystore.password",), keyword="ssl_password"),
    Property("ssl.endpoint.identification.algorithm", _HOST_CHECK, gives=("ssl_check_hostname",)),
    Property("ssl_check_hostname", BOOLEAN),
    # For consumers.
    Property("group.protocol", choice("classic", "consumer", "auto"), CONSUMER),
    Property("group.remote.assignor", choice("uniform", "range"), CONSUMER, keyword="assignor"),
    Property("group.instance.id", SENT_TEXT, CONSUMER),
    Property("session.timeout.ms", _SOME_MS, CONSUMER),
    Property("heartbeat.interval.ms", _SOME_MS, CONSUMER),
    Property("max.poll.interval.ms", _SOME_MS, CONSUMER),
    Property("rebalance.timeout.ms", _SOME_MS, CONSUMER),
    Property("max.poll.records", COUNT, CONSUMER),
    Property("fetch.min.bytes", _BYTES, CONSUMER),
    Property("fetch.max.bytes", _BYTES, CONSUMER),
    Property("fetch.max.wait.ms", _MS, CONSUMER, also=("fetch.wait.max.ms",)),
    Property("max.partition.fetch.bytes", _BYTES, CONSUMER),
    Property("isolation.level", choice("read_uncommitted", "read_committed"), CONSUMER),
    Property("check.crcs", BOOLEAN, CONSUMER),
    Property("exclude.internal.topics", BOOLEAN, CONSUMER),
    Property("client.rack", SENT_TEXT, CONSUMER),
    Property("enable.metrics.push", BOOLEAN, CONSUMER),
    Property(
        "partition.assignment.strategy",
        _ASSIGNOR_KIND,
        CONSUMER,
        keyword="assignors",
    ),
    # For producers.
    Property("acks", _ACKS_KIND, PRODUCER),
    Property("enable.idempotence", BOOLEAN, PRODUCER),
    Property(
        "compression.type",
        choice("none", "gzip", "snappy", "lz4", "zstd"),
        PRODUCER,
        gives=("compression_type",),
        expand=lambda codec: {"compression_type": None if codec == "none" else codec},
    ),
    Property("linger.ms", _MS, PRODUCER),
    Property("transaction.timeout.ms", _MS, PRODUCER),
    Property("batch.size", _BYTES, PRODUCER, keyword="max_batch_size"),
    Property("max.request.size", _BYTES, PRODUCER),
)

_BY_FORM: dict[str, Property] = {
    form(spelling): prop for prop in PROPERTIES for spelling in (prop.name, *prop.also, prop.kafka)
}

AUTO_COMMIT_INTERVAL = Property("auto.commit.interval.ms", _SOME_MS, CONSUMER)
"""Sets our ``commit_interval``, for ``enable_auto_commit``.

The client never gets it, because auto commits are made by us, too.
"""

_OAUTH = "give an object with an async method token() as sasl_oauth_token_provider, in code"
REFUSED: dict[str, str] = {
    name: instead
    for instead, names in {
        "offsets are stored by acks: see ack": "enable.auto.offset.store",
        "no call here waits for records with a timeout": "consumer.timeout.ms",
        "aiokafka asks the broker for it": "api.version",
        "the application's own event loop is used": "loop",
        "sends are retried until send_timeout": "retries",
        "use send_timeout": "delivery.timeout.ms max.block.ms",
        "use request.timeout.ms": (
            "default.api.timeout.ms socket.connection.setup.timeout.ms "
            "socket.connection.setup.timeout.max.ms"
        ),
        "use max_in_flight of the outgoing channel": "buffer.memory",
        "aiokafka keeps one request in flight per partition, so order holds": (
            "max.in.flight.requests.per.connection"
        ),
        "use partitioner of the outgoing channel, which is murmur2 as in Java by default": (
            "partitioner.class"
        ),
        "Java classes cannot be loaded; use a handler": "interceptor.classes",
        "Java classes cannot be loaded; metrics are served at /metrics": "metric.reporters",
        "aiokafka waits retry.backoff.ms between attempts": (
            "reconnect.backoff.ms reconnect.backoff.max.ms"
        ),
        "use retry.backoff.ms, which is the same for every attempt": "retry.backoff.max.ms",
        "aiokafka leaves the size of socket buffers to the system": (
            "receive.buffer.bytes send.buffer.bytes"
        ),
        "every address of a name is tried": "client.dns.lookup",
        "the broker's auto.create.topics.enable decides": "allow.auto.create.topics",
        "bootstrap servers are asked again automatically": "metadata.recovery.strategy",
        "the TLS settings are those of Python's ssl; give an ssl_context in code for anything "
        "special": (
            "security.providers ssl.protocol ssl.provider ssl.enabled.protocols ssl.cipher.suites "
            "ssl.ciphers ssl.crlfile ssl.engine.factory.class ssl.keymanager.algorithm "
            "ssl.trustmanager.algorithm ssl.secure.random.implementation"
        ),
        "write it to a PEM file and name that in ssl.keystore.location (key and chain) or "
        "ssl.key.location (the key)": "ssl.keystore.key ssl.keystore.certificate.chain",
        "PEM files of certificates have no password; leave it out": "ssl.truststore.password",
        _OAUTH: (
            "sasl.client.callback.handler.class sasl.login.class sasl.login.callback.handler.class "
            "sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.jwks.endpoint.url"
        ),
        "run kinit before the application starts": "sasl.kerberos.kinit.cmd",
    }.items()
    for name in names.split()
}
"""Property without an equivalent in aiokafka -> what to use instead."""
_REFUSED_BY_FORM = {form(name): instead for name, instead in REFUSED.items()}
_REFUSED_FAMILIES = {
    "sasl_oauthbearer_": _OAUTH,
    "sasl_login_": "connections that the broker closes are reopened automatically",
    "sasl_kerberos_ticket_": (
        "renew the ticket outside of the application, for example with k5start"
    ),
    "metrics_": "metrics are served at /metrics",
    "share_group_": "aiokafka does not support share groups",
}


def refusal(name: str) -> str | None:
    """Return what to use instead of a refused property; None if *name* is not refused."""
    instead = _REFUSED_BY_FORM.get(form(name))
    if instead is not None:
        return instead
    for prefix, instead_of_family in _REFUSED_FAMILIES.items():
        if form(name).startswith(prefix):
            return instead_of_family
    return None


def find(name: str) -> Property | None:
    """Return the property with that name of Kafka's or aiokafka's, or None."""
    return _BY_FORM.get(form(name))


def names_like(name: str) -> list[str]:
    """Return all names that a misspelt *name* may mean, with dots or underscores like *name*."""
    known = (*PROPERTIES, AUTO_COMMIT_INTERVAL)
    if "." in name:
        return [prop.kafka for prop in known] + sorted(REFUSED)
    return [prop.name for prop in known]


SIDES: dict[str, frozenset[Side]] = {name: prop.sides for prop in PROPERTIES for name in prop.names}
"""aiokafka's keyword -> which clients take it."""


_CONNECTION = ("bootstrap_servers", "security_protocol", "request_timeout_ms")


def connection_of(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a channel's raw client properties that say how to connect."""
    return {
        name: value
        for name, value in client.items()
        if name in _CONNECTION or name.startswith(("ssl_", "sasl_"))
    }
