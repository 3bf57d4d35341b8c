"""Client properties that aiokafka has no equivalent of, and Spark's that are keys here: what to use instead. Pure."""

from __future__ import annotations

_TLS = "the TLS settings are those of Python's ssl; give an ssl_context in code for anything special"
_PEM_INSTEAD = (
    "write it to a PEM file and name that in ssl.keystore.location (key and chain) or ssl.key.location (the key)"
)
_RECONNECT = "aiokafka waits retry.backoff.ms between attempts"
_SOCKET = "aiokafka leaves the size of socket buffers to the system"
_OAUTH = "give an object with an async method token() as sasl_oauth_token_provider, in code"

SPARK_REFUSED: dict[str, str] = {
    "spark.master": 'write master = "..." in [spark]',
    "spark.remote": 'write remote = "sc://host:15002" in [spark]',
}
"""Spark's properties that ``[spark]`` has keys for; in ``[spark.conf]`` they would have no effect."""

REFUSED: dict[str, str] = {
    "auto.commit.interval.ms": "use commit_interval",
    "enable.auto.offset.store": "offsets are stored by acks: see ack",
    "consumer.timeout.ms": "no call here waits for records with a timeout",
    "api.version": "aiokafka asks the broker for it",
    "loop": "the application's own event loop is used",
    "retries": "sends are retried until send_timeout",
    "delivery.timeout.ms": "use send_timeout",
    "max.block.ms": "use send_timeout",
    "default.api.timeout.ms": "use request.timeout.ms",
    "buffer.memory": "use max_in_flight of the outgoing channel",
    "max.in.flight.requests.per.connection": "aiokafka keeps one request in flight per partition, so order holds",
    "partitioner.class": "aiokafka partitions by murmur2 of the key, as Java does; or set Record(partition=...)",
    "transaction.timeout.ms": "transactions are not supported yet",
    "interceptor.classes": "Java classes cannot be loaded; use a handler",
    "metric.reporters": "Java classes cannot be loaded; metrics are served at /metrics",
    "reconnect.backoff.ms": _RECONNECT,
    "reconnect.backoff.max.ms": _RECONNECT,
    "retry.backoff.max.ms": "use retry.backoff.ms, which is the same for every attempt",
    "socket.connection.setup.timeout.ms": "use request.timeout.ms",
    "socket.connection.setup.timeout.max.ms": "use request.timeout.ms",
    "receive.buffer.bytes": _SOCKET,
    "send.buffer.bytes": _SOCKET,
    "client.dns.lookup": "every address of a name is tried",
    "allow.auto.create.topics": "the broker's auto.create.topics.enable decides",
    "group.protocol": "only the classic group protocol is supported",
    "group.remote.assignor": "use partition.assignment.strategy",
    "metadata.recovery.strategy": "bootstrap servers are asked again automatically",
    "security.providers": _TLS,
    "ssl.protocol": _TLS,
    "ssl.provider": _TLS,
    "ssl.enabled.protocols": _TLS,
    "ssl.cipher.suites": _TLS,
    "ssl.ciphers": _TLS,
    "ssl.crlfile": _TLS,
    "ssl.engine.factory.class": _TLS,
    "ssl.keymanager.algorithm": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.keystore.key": _PEM_INSTEAD,
    "ssl.keystore.certificate.chain": _PEM_INSTEAD,
    "ssl.truststore.password": "PEM files of certificates have no password; leave it out",
    "sasl.client.callback.handler.class": _OAUTH,
    "sasl.login.class": _OAUTH,
    "sasl.login.callback.handler.class": _OAUTH,
    "sasl.oauthbearer.token.endpoint.url": _OAUTH,
    "sasl.oauthbearer.jwks.endpoint.url": _OAUTH,
    "sasl.kerberos.kinit.cmd": "run kinit before the application starts",
}
"""Name of the property -> what to use instead."""

_FAMILIES: tuple[tuple[str, str], ...] = (
    ("sasl_oauthbearer_", _OAUTH),
    ("sasl_login_", "connections that the broker closes are reopened automatically"),
    ("sasl_kerberos_ticket_", "renew the ticket outside of the application, for example with k5start"),
    ("metrics_", "metrics are served at /metrics"),
    ("share_group_", "aiokafka does not support share groups"),
)


def form(name: str) -> str:
    """The name with underscores as its only separator, as properties are looked up."""
    return name.replace(".", "_").replace("-", "_")


_BY_FORM = {form(name): instead for name, instead in REFUSED.items()}


def refusal(name: str) -> str | None:
    """What to use instead of a Kafka property that is refused, or None if *name* is not one."""
    key = form(name)
    family = next((instead for prefix, instead in _FAMILIES if key.startswith(prefix)), None)
    return _BY_FORM.get(key, family)
