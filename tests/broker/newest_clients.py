"""The jar of the newest version of Kafka's own clients, which our tables are compared with."""

from __future__ import annotations

from pathlib import Path

from reactive_kafka.broker.error_codes import SOURCE_VERSION
from reactive_kafka.broker.jars import Artifact, fetched_once

CLIENTS = Artifact("org.apache.kafka", "kafka-clients", SOURCE_VERSION, is_alone=True)
LOGGING = Artifact("org.slf4j", "slf4j-api", "1.7.36", is_alone=True)
PINNED = {
    "kafka-clients-4.4.0.jar": "1ab07317eb6633241392449d329dbdc5d9251e6ffc4926860f42dd966e88bdf9",
    "slf4j-api-1.7.36.jar": "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
}
"""Of the newest version of Kafka's clients. A newer one begins here and with SOURCE_VERSION."""


def newest_clients() -> Path:
    """Return the folder with the jar and what it needs to run."""
    return fetched_once(
        f"kafka-clients {SOURCE_VERSION}",
        "error-codes",
        (CLIENTS, LOGGING),
        needed=(CLIENTS.jar, LOGGING.jar),
        pinned=PINNED,
    )
