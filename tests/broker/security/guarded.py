"""A real Kafka that lets nobody in without credentials, and what its administrator does
meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.broker.security.certificates import make_certificates
from tests.harness.kafka import KafkaCluster

PASSWORD, WRONG = "canary-6d1f", "canary-wrong-82aa"
# May do everything; everybody else, what they are granted.
SUPER = "carol"
PLAIN_USERS = (SUPER, "dave", "erin", "frank")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
REAUTH_S = 2.0
ANSWER_S = 20.0

LISTENERS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "FOREIGN": "SSL",
    # TLS 1.1 only.
    "OLD": "SSL",
    "SASL": "SASL_SSL",
    # Sessions end soon; no PLAIN; clients may show a certificate.
    "SHORT": "SASL_SSL",
}
CERTIFICATES = {
    "EXPIRED": "server-expired",
    "ELSEWHERE": "server-elsewhere",
    "FOREIGN": "server-foreign",
}
LOGIN = "org.apache.kafka.common.security"


class Guarded:
    """The broker, as its clients and its administrator see it."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        # Of the certificates.
        self.folder = folder
        # Where nobody is asked for anything.
        self.open = cluster.bootstrap_servers
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": self.open, "log_level": 0})

    def at(self, listener: str) -> str:
        """``host:port`` of a listener."""
        return self._cluster.address(1, listener)

    def way(self, name: str, listener: str | None = None, user: str = SUPER) -> dict[str, Any]:
        """What ``[kafka]`` holds to come in with TLS, MTLS or one of the mechanisms."""
        tls = {"ssl_cafile": str(self.folder / "ours.crt")}
        if name in ("TLS", "MTLS"):
            client = self.files("client") if name == "MTLS" else {}
            return {
                "bootstrap_servers": self.at(listener or name),
                "security_protocol": "SSL",
                **tls,
                **client,
            }
        sasl: dict[str, Any] = {"sasl_plain_username": user, "sasl_plain_password": PASSWORD}
        if name == "OAUTHBEARER":
            sasl = {"sasl_oauth_token_provider": Tokens(user)}
        address = self.at(listener or "SASL")
        return {
            "bootstrap_servers": address,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": name,
            **tls,
            **sasl,
        }

    def files(self, name: str) -> dict[str, str]:
        """The settings of a client's certificate."""
        return {
            "ssl_certfile": str(self.folder / f"{name}.crt"),
            "ssl_keyfile": str(self.folder / f"{name}.key"),
        }

    def create_topics(self, *prefixes: str) -> list[str]:
        """New topics with one partition each; their names begin with the prefixes, and end
        alike.
        """
        end = uuid.uuid4().hex[:8]
        names = [f"{prefix}-{end}" for prefix in prefixes]
        _done(self._admin.create_topics([NewTopic(name, 1, 1) for name in names]))
        return names

    def give_password(self, password: str, user: str = SUPER, only: str | None = None) -> None:
        """The password of a user, for both SCRAM mechanisms or *only* one."""
        kinds = {
            "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
            "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
        }
        for name, kind in kinds.items():
            if only in (None, name):
                info = ScramCredentialInfo(kind, 4096)
                changed = UserScramCredentialUpsertion(user, info, password.encode())
                _done(self._admin.alter_user_scram_credentials([changed]))

    def show_certificate(self, listener: str, name: str) -> None:
        """Have a listener show another certificate; it does when this returns."""
        changed = ConfigResource("broker", "1")
        for key, value in self._keystore(name).items():
            full = f"listener.name.{listener.lower()}.{key}"
            changed.add_incremental_config(
                ConfigEntry(full, value, incremental_operation=AlterConfigOpType.SET)
            )
        _done(self._admin.incremental_alter_configs([changed]))
        host, port = self.at(listener).split(":")
        wanted = (self.folder / f"{name}.crt").read_text()
        deadline = time.monotonic() + ANSWER_S
        while ssl.get_server_certificate((host, int(port)), timeout=ANSWER_S) != wanted:
            assert time.monotonic() < deadline, f"{listener} does not show {name}"
            time.sleep(0.02)

    def trust(self, listener: str, authority: str) -> None:
        """Have a listener trust the clients of another authority, and no others; connections that
        there are stay.
        """
        changed = ConfigResource("broker", "1")
        full = f"listener.name.{listener.lower()}.ssl.truststore"
        for key, value in (("type", "PEM"), ("location", str(self.folder / f"{authority}.crt"))):
            changed.add_incremental_config(
                ConfigEntry(f"{full}.{key}", value, incremental_operation=AlterConfigOpType.SET)
            )
        _done(self._admin.incremental_alter_configs([changed]))

    def grant(self, user: str, rights: Sequence[Right]) -> None:
        """Allow a user something."""
        _done(self._admin.create_acls([_binding(AclBinding, user, right) for right in rights]))

    def withdraw(self, user: str, rights: Sequence[Right]) -> None:
        """Take back what was allowed."""
        _done(
            self._admin.delete_acls([_binding(AclBindingFilter, user, right) for right in rights])
        )

    def _keystore(self, name: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / f"{name}.pem"),
        }


Right = tuple[str, str, str]
"""An operation, a kind of resource and how its name begins: ``("READ", "TOPIC", "orders")``."""


def _binding(kind: Any, user: str, right: Right) -> Any:
    operation, resource, name = right
    return kind(
        ResourceType[resource],
        name,
        ResourcePatternType.LITERAL if resource == "BROKER" else ResourcePatternType.PREFIXED,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def _done(answers: Mapping[Any, Any]) -> None:
    for answer in answers.values():
        answer.result(ANSWER_S)


class Tokens:
    """Gives unsecured tokens, for as long as it is let; keeps how often it was asked."""

    def __init__(self, user: str, lives_s: float = 3600.0) -> None:
        self.user = user
        self.lives_s = lives_s
        self.asked = 0
        # Raised instead.
        self.error: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def token(self) -> str:
        """A token of the user's, new each time."""
        self.asked += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        # The broker's clock is another one.
        now = time.time() - 5.0
        claims = {"sub": self.user, "iat": now, "exp": now + self.lives_s}
        return ".".join([*(_base64(part) for part in ({"alg": "none"}, claims)), ""])


def _base64(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


@contextmanager
def guarded_kafka(folder: Path) -> Iterator[Guarded]:
    """The broker, until the context ends; *folder* gets the certificates."""
    make_certificates(folder)
    # Java itself refuses TLS 1.1: one listener shall speak it all the same.
    (folder / "java.security").write_text("jdk.tls.disabledAlgorithms=NULL\n")
    java = {"JAVA_TOOL_OPTIONS": f"-Djava.security.properties={folder / 'java.security'}"}
    with patch.dict(os.environ, java):
        cluster = KafkaCluster(properties=dict(_properties(folder)), listeners=LISTENERS)
        cluster.__enter__()
    try:
        guarded = Guarded(cluster, folder)
        guarded.give_password(PASSWORD)
        yield guarded
    finally:
        cluster.stop()


def _properties(folder: Path) -> Iterator[tuple[str, str]]:
    yield "authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    yield "super.users", f"User:ANONYMOUS;User:{SUPER}"
    yield "auto.create.topics.enable", "false"
    yield "num.network.threads", "1"
    yield "ssl.principal.mapping.rules", "RULE:^CN=(.*)$/$1/"
    yield "ssl.allow.san.changes", "true"
    yield "ssl.truststore.type", "PEM"
    yield "ssl.truststore.location", str(folder / "ours.crt")
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in PLAIN_USERS)
    modules = {
        "PLAIN": f"{LOGIN}.plain.PlainLoginModule required {users};",
        "OAUTHBEARER": f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }
    for listener, protocol in LISTENERS.items():
        prefix = f"listener.name.{listener.lower()}"
        yield f"{prefix}.ssl.keystore.type", "PEM"
        yield (
            f"{prefix}.ssl.keystore.location",
            str(folder / f"{CERTIFICATES.get(listener, 'server')}.pem"),
        )
        if protocol == "SASL_SSL":
            mechanisms = MECHANISMS if listener == "SASL" else ("SCRAM-SHA-256", "OAUTHBEARER")
            yield f"{prefix}.sasl.enabled.mechanisms", ",".join(mechanisms)
            for mechanism in mechanisms:
                login = modules.get(mechanism, f"{LOGIN}.scram.ScramLoginModule required;")
                yield f"{prefix}.{mechanism.lower()}.sasl.jaas.config", login
                if listener == "SHORT":
                    ms = str(round(REAUTH_S * 1000))
                    yield f"{prefix}.{mechanism.lower()}.connections.max.reauth.ms", ms
    yield "listener.name.mtls.ssl.client.auth", "required"
    yield "listener.name.short.ssl.client.auth", "requested"
    yield "listener.name.old.ssl.enabled.protocols", "TLSv1.1"
    yield "listener.name.old.ssl.protocol", "TLSv1.1"
