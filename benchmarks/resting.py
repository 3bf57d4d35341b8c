"""The application of ``benchmarks.at_rest``: it says how many channels have read nothing yet, and rests then."""

from __future__ import annotations

import os

from reactive_kafka import App

CHANNELS = int(os.environ["REST_CHANNELS"])
NAMES = [f"{os.environ['REST_TOPIC']}-{number}" for number in range(CHANNELS)]

app = App(
    {
        "kafka": {"bootstrap_servers": os.environ["REST_BOOTSTRAP"]},
        "http": {"enabled": os.environ["REST_HTTP"] == "on", "port": 0},
        "incoming": {
            name: {"topic": name, "group_id": f"{name}-{os.environ['REST_RUN']}", "auto_offset_reset": "earliest"}
            for name in NAMES
        },
    }
)
_silent = set(NAMES)


def _read(name: str) -> None:
    @app.incoming(name)
    async def handle(value: bytes) -> None:
        if name in _silent:
            _silent.discard(name)
            print(len(_silent), flush=True)


for _name in NAMES:
    _read(_name)
