"""What spans and metrics say of a Kafka cluster: a broker's address, and the cluster's id. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
CLUSTER_ID = "messaging.kafka.cluster.id"


def server_attributes(bootstrap_servers: object) -> Mapping[str, str | int]:
    """Return the address and the port of the first bootstrap server.

    Returns:
        Nothing for the embedded broker, whose port is not known before it runs.
    """
    if not isinstance(bootstrap_servers, str) or bootstrap_servers == "embedded":
        return MappingProxyType({})
    first = bootstrap_servers.partition(",")[0].strip()
    host, colon, port = first.rpartition(":")
    if not (colon and port.isdecimal()):
        return MappingProxyType({SERVER_ADDRESS: first.strip("[]")})
    return MappingProxyType({SERVER_ADDRESS: host.strip("[]"), SERVER_PORT: int(port)})


class ClusterAttributes:
    """The attributes of one cluster.

    Attributes:
        server: The address and the port of the broker that the configuration names first.
        attributes: The same, and the id of the cluster once a broker has told it.
    """

    def __init__(self, bootstrap_servers: object) -> None:
        self.server = server_attributes(bootstrap_servers)
        self.attributes: Mapping[str, str | int] = self.server

    def learn_id(self, cluster_id: str) -> None:
        """Note the id of the cluster."""
        if self.attributes.get(CLUSTER_ID) != cluster_id:
            self.attributes = MappingProxyType({**self.server, CLUSTER_ID: cluster_id})


class Clusters:
    """The clusters that one run uses, by ``bootstrap_servers``.

    Channels of one cluster share its attributes, so that the id that one client learns is known to
    all.
    """

    def __init__(self) -> None:
        self._known: dict[str, ClusterAttributes] = {}

    def of(self, bootstrap_servers: object) -> ClusterAttributes:
        """Return the attributes of a cluster."""
        name = str(bootstrap_servers)
        if name not in self._known:
            self._known[name] = ClusterAttributes(bootstrap_servers)
        return self._known[name]
