"""A Kafka broker whose controller is a process of its own, which can go while the broker stays."""

from __future__ import annotations

from reactive_kafka.broker.local_kafka import HOST, Node, free_ports, kafka_id
from tests.harness.kafka import KafkaCluster


class WithOwnController(KafkaCluster):
    """One broker, and one controller beside it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.controller = Node(100, self.directory / "controller", *free_ports(2))

    def start_controller(self) -> None:
        """Start it, on the same port and data."""
        self.controller.start()

    def stop_controller(self) -> None:
        """End it with SIGKILL."""
        assert self.controller.pid is not None
        self.controller.kill()

    def stop(self) -> None:
        """End both, and remove the data."""
        self.controller.kill()
        super().stop()

    def _format(self) -> None:
        at, cluster = f"{HOST}:{self.controller.controller_port}", kafka_id()
        listener = f"CONTROLLER://{at}"
        self.controller.write_config(
            {"process.roles": "controller", "listeners": listener, "advertised.listeners": listener}
        )
        self.controller.format("--standalone", "-t", cluster)
        broker = self.nodes[1]
        self._properties |= {
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": at,
            "listeners": f"PLAINTEXT://{broker.address},INTERNAL://{self.internal[1]}",
        }
        self._write_config(broker)
        broker.format("--no-initial-controllers", "-t", cluster)
        self.start_controller()
