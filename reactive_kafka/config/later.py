"""What of the configuration is named already and not built yet. Pure data."""

from __future__ import annotations

from typing import Any

LATER_INCOMING = {
    "cloud_events": "",
    "schema": "",
}
"""Key of an incoming channel -> what to do meanwhile, or ""."""
LATER_OUTGOING = {
    "transactional_id": "",
    "transactional": "",
    "cloud_events": "",
    "schema": "",
    "propagate_headers": "return a Record with the headers",
    "partitioner": "return a Record with the partition",
    "linger": "use the raw property linger.ms",
    "compression": "use the raw property compression.type",
    "reply_topic": "",
}
"""The same of an outgoing channel."""
LATER_DEFAULTS: dict[str, Any] = {
    "transactional": False,
}
"""Keys that are not built yet -> their default, which may be written all the same."""
LATER_SECTIONS = {
    "memory": "in-memory channels",
    "schema_registry": "schema registries",
    "mp": "MicroProfile properties",
}
"""Section -> what it will configure."""
