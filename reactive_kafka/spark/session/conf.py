"""Translates the user's settings into Spark's properties, and into its options for Kafka. Pure.

Callers pass the content of PEM files. Executors may run on other machines, so certificates and keys
are sent as text, never as the path of a file.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reactive_kafka.config.secrets import SECRET_NAMES, Secret, revealed
from reactive_kafka.config.settings import IncomingSettings, SparkSettings
from reactive_kafka.errors import ConfigError

LOOPBACK = "127.0.0.1"

# How long executors keep a Kafka consumer, and the records it has fetched, after its task. No other
# job uses it again. With the default of five minutes, 100 connections were open after 25 small
# batches of two partitions.
CONSUMERS: Mapping[str, str] = {
    f"spark.kafka.consumer.{cache}.{name}": "5s"
    for cache in ("cache", "fetchedData.cache")
    for name in ("timeout", "evictorThreadRunInterval")
}


def session_conf(
    settings: SparkSettings, cores: int, *, jars: Sequence[str] = (), path: str = ""
) -> dict[str, str]:
    """Return Spark's properties. Those of the user replace ours.

    Args:
        settings: The table ``[spark]``.
        cores: The number of processors of this machine.
        jars: The jars of the Kafka connector.
        path: Our PYTHONPATH, for executors on this machine.
    """
    conf = {
        "spark.app.name": "reactive-kafka",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        # A cancelled Python task ends after 0.2 s instead of 2 s.
        "spark.python.task.killTimeout": "200ms",
        "spark.sql.session.timeZone": "UTC",
        # Larger batches are cut into partitions.
        "spark.sql.execution.arrow.localRelationThreshold": "1m",
    }
    if on_this_machine(settings.master):
        conf["spark.driver.host"] = LOOPBACK
        conf["spark.driver.bindAddress"] = LOOPBACK
    if settings.master.startswith("local"):
        conf["spark.sql.shuffle.partitions"] = str(local_cores(settings.master, cores))
    elif on_this_machine(settings.master):
        # A worker does not pass our environment on to its executors.
        conf["spark.executorEnv.PYTHONPATH"] = path
    if jars:
        conf.update(CONSUMERS)
    # Spark shows Hadoop's properties also under Hadoop's own names.
    hidden = [
        f"\\Q{name.removeprefix('spark.hadoop.')}\\E" for name in (*SECRET, *secret_names(settings))
    ]
    # Spark's pages and its event log do not show the values of these properties.
    conf["spark.redaction.regex"] = "|".join((SECRET_NAMES, *hidden))
    conf.update({name: spelled(value) for name, value in settings.conf.items()})
    conf["spark.master"] = spelled(settings.master)
    if jars:
        conf["spark.jars"] = ",".join([*filter(None, [conf.get("spark.jars")]), *jars])
    return conf


def secret_names(settings: SparkSettings) -> list[str]:
    """Return the names of the properties whose values are secrets."""
    properties = {**settings.conf, "spark.master": settings.master}
    return [name for name, value in properties.items() if isinstance(value, Secret)]


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file. Source: java.util.Properties.load."""
    lines = (
        f"{_escaped(name, ' =:#!')}={_escaped(value, ' ')}\n" for name, value in properties.items()
    )
    return "".join(lines)


def _escaped(text: str, special: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return "".join(f"\\{char}" if char in special else char for char in escaped)


def driver_environment(
    settings: SparkSettings, environ: Mapping[str, str], *, java_home: str, python: str, path: str
) -> dict[str, str]:
    """Return the variables to set while a session is opened.

    Except for JAVA_HOME and PYTHONPATH, variables in *environ*, that of the process, stay.
    """
    ours = {}
    named_python = settings.conf.get("spark.pyspark.python")
    if named_python:
        # Only Spark's own scripts read that property. pyspark reads this variable.
        ours["PYSPARK_PYTHON"] = spelled(named_python)
    elif on_this_machine(settings.master):
        # Executors need the same version. On other machines, Python may have another path.
        ours["PYSPARK_PYTHON"] = python
    if settings.master.startswith("local") and "PYSPARK_PYTHON" not in environ:
        ours["PYTHONPATH"] = path
    if on_this_machine(settings.master):
        # It may be impossible to resolve the name of the machine.
        ours["SPARK_LOCAL_IP"] = LOOPBACK
    variables = {
        name: value for name, value in ours.items() if name == "PYTHONPATH" or name not in environ
    }
    return {**variables, "JAVA_HOME": java_home}


def on_this_machine(master: str) -> bool:
    """True if the executors are on this machine, so that they can use its loopback interface."""
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def masters_in(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master in the URL of a standalone cluster.

    ``spark://a:7077,b:7077`` has two; other URLs have none.
    """
    if not master.startswith("spark://"):
        return []
    masters = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if host and port.isdecimal():
            masters.append((host.strip("[]"), int(port)))
    return masters


def local_cores(master: str, cores: int) -> int:
    """Return how many tasks a ``local``, ``local[N]`` or ``local[*]`` master runs at once."""
    match = re.match(r"local\[(\d+)", master)
    if match:
        return int(match[1])
    return cores if master.startswith("local[*") else 1


def spelled(value: Any) -> str:
    """Return a value as Spark and Java read it; of a secret, its text."""
    value = revealed(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


PASSED = frozenset(
    {
        "security_protocol",
        "request_timeout_ms",
        "retry_backoff_ms",
        "metadata_max_age_ms",
        "connections_max_idle_ms",
        "max_poll_records",
        "fetch_min_bytes",
        "fetch_max_bytes",
        "fetch_max_wait_ms",
        "max_partition_fetch_bytes",
        "check_crcs",
        "client_rack",
    }
)
"""Properties that have the same meaning in Java, where they have Kafka's names."""

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
_RECORDS_MODE = 'or use mode = "records", which reads with this process\'s own client'
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
# Options with secret values.
SECRET = ("kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.key.password")


def kafka_options(settings: IncomingSettings, read: Callable[[str], str]) -> dict[str, str]:
    """Return Spark's ``kafka.*`` options for a channel, without the addresses of the brokers.

    They contain secrets: never log them. Properties of a group member are left out, because Spark
    would refuse them.

    Args:
        settings: The settings of the channel.
        read: Returns the text of a PEM file, or raises OSError.

    Raises:
        ConfigError: A property has no equivalent in Java's client.
    """
    client = settings.client
    refusals = [_refusal(settings, name) for name in client]
    problems = [problem for problem in refusals if problem is not None]
    if problems:
        raise ConfigError(*problems)
    java = {name.replace("_", "."): spelled(client[name]) for name in client if name in PASSED}
    java["isolation.level"] = str(client.get("isolation_level", "read_uncommitted"))
    protocol = str(client.get("security_protocol", "PLAINTEXT"))
    if protocol.startswith("SASL_"):
        java.update(_sasl(settings))
    if protocol.endswith("SSL"):
        java.update(_tls(settings, read))
    return {f"kafka.{name}": value for name, value in java.items()}


def _refusal(settings: IncomingSettings, name: str) -> str | None:
    if name == "sasl_mechanism" and settings.client[name] not in _MECHANISMS:
        reason = (
            f"executors log in with {', '.join(_MECHANISMS)} only: use one of them, {_RECORDS_MODE}"
        )
    elif name in PASSED | OURS_ALONE | _TRANSLATED:
        return None
    elif name in _REFUSED:
        reason = f"{_REFUSED[name]}, {_RECORDS_MODE}"
    else:
        reason = f"it cannot be translated for executors: leave it out, {_RECORDS_MODE}"
    return _problem(settings, name, reason)


def _problem(settings: IncomingSettings, name: str, reason: str) -> str:
    return f'{settings.place(name, settings.client[name])}: mode = "ranges": {reason}'


def _sasl(settings: IncomingSettings) -> dict[str, str]:
    client = settings.client
    mechanism = str(client.get("sasl_mechanism", "PLAIN"))
    user = _quoted(spelled(client.get("sasl_plain_username", "")))
    password = _quoted(spelled(client.get("sasl_plain_password", "")))
    login = f"{_MECHANISMS[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _quoted(text: str) -> str:
    """Quote *text* for JAAS, where a string would end at a line break.

    Source: java.io.StreamTokenizer.
    """
    for char, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(char, escaped)
    return f'"{text}"'


def _tls(settings: IncomingSettings, read: Callable[[str], str]) -> dict[str, str]:
    client = settings.client
    java: dict[str, str] = {}
    trusted = _CERTIFICATE.findall(str(client.get("ssl_cadata", "")))
    if "ssl_cafile" in client:
        trusted += _certificates(settings, "ssl_cafile", read)
    if trusted:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.certificates"] = "\n".join(trusted)
    if "ssl_certfile" in client:
        java.update(_key_store(settings, read))
    if not client.get("ssl_check_hostname", True):
        java["ssl.endpoint.identification.algorithm"] = ""
    return java


def _key_store(settings: IncomingSettings, read: Callable[[str], str]) -> dict[str, str]:
    chain = "\n".join(_certificates(settings, "ssl_certfile", read))
    key_name = "ssl_keyfile" if "ssl_keyfile" in settings.client else "ssl_certfile"
    key = _KEY.search(_pem(settings, key_name, read))
    if key is None:
        raise ConfigError(_problem(settings, key_name, "the file holds no private key in PEM form"))
    if key["kind"] not in ("", "ENCRYPTED ") or "Proc-Type:" in key[0]:
        make = "openssl pkcs8 -topk8 -in KEY -out NEW"
        raise ConfigError(
            _problem(
                settings, key_name, f"Java reads keys in PKCS #8 form only: make one with {make}"
            )
        )
    store = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key[0],
    }
    if not key["kind"]:
        # The key is not encrypted. Java refuses a password for it.
        return store
    if "ssl_password" not in settings.client:
        raise ConfigError(_problem(settings, key_name, "the key is encrypted: set ssl_password"))
    if _PBES2 in a2b_base64("".join(key[0].splitlines()[1:-1])):
        make = "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in KEY -out NEW"
        reason = (
            f"Java reads no key that is encrypted by PBES2: make one with {make}, or one that is"
            " not encrypted"
        )
        raise ConfigError(_problem(settings, key_name, reason))
    return {**store, "ssl.key.password": spelled(settings.client["ssl_password"])}


def _certificates(settings: IncomingSettings, name: str, read: Callable[[str], str]) -> list[str]:
    found: list[str] = _CERTIFICATE.findall(_pem(settings, name, read))
    if not found:
        raise ConfigError(_problem(settings, name, "the file holds no certificate in PEM form"))
    return found


def _pem(settings: IncomingSettings, name: str, read: Callable[[str], str]) -> str:
    try:
        return read(str(settings.client[name]))
    except OSError as error:
        raise ConfigError(_problem(settings, name, f"the file cannot be read: {error}")) from error
