"""A package that a setting needs and that is not installed is named by `check` and at the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest


class Need(NamedTuple):
    """What needs an extra, with the package of it that is missing."""

    name: str
    extra: str
    missing: str
    config: str
    code: str = ""

    def __str__(self) -> str:
        return self.name


IN = '[incoming.orders]\ngroup_id = "g"\n'
OUT = "[outgoing.invoices]\n"
LETTERS = f'{IN}failure_strategy = "dead-letter-queue"\n[incoming.orders.dead_letter_queue]\n'
RETRIES = f'{IN}failure_strategy = "delayed-retry-topic"\n[incoming.orders.delayed_retry]\ntopics = ["r_1000"]\n'
STORE = f'{IN}commit_strategy = "checkpoint"\n[incoming.orders.checkpoint]\nstore = '
REGISTRY = '[schema_registry]\nurl = "http://registry:8081"\n'
HANDLER = '@app.incoming("orders")\nasync def handle(value: dict) -> None: ...\n'
SENDER = '@app.incoming("orders")\n@app.outgoing("invoices")\nasync def handle(value: dict) -> dict: ...\n'
EMITTER = 'app.emitter("invoices")\n'
ON_SPARK = '@app.spark("orders")\ndef handle(df, batch): ...\n'

NEEDS = (
    *(
        Need(
            f"compression = {codec}",
            "compression",
            "cramjam",
            f'{OUT}compression = "{codec}"\n',
            EMITTER,
        )
        for codec in ("zstd", "lz4", "snappy")
    ),
    Need(
        "compression.type", "compression", "cramjam", f'{OUT}"compression.type" = "zstd"\n', EMITTER
    ),
    Need("compression_type", "compression", "cramjam", f'{OUT}compression_type = "lz4"\n', EMITTER),
    Need(
        "compression of transactions",
        "compression",
        "cramjam",
        f'{OUT}compression = "zstd"\ntransactional_id = "t"\n',
        EMITTER,
    ),
    Need(
        "compression of all",
        "compression",
        "cramjam",
        f'[kafka]\ncompression = "zstd"\n{OUT}',
        EMITTER,
    ),
    Need(
        "compression of letters",
        "compression",
        "cramjam",
        f'{LETTERS}compression = "zstd"\n',
        HANDLER,
    ),
    Need(
        "embedded",
        "embedded",
        "confluent_kafka",
        f'[kafka]\nbootstrap_servers = "embedded"\n{IN}',
        HANDLER,
    ),
    Need(
        "embedded of one channel",
        "embedded",
        "confluent_kafka",
        f'{OUT}bootstrap_servers = "embedded"\n',
        EMITTER,
    ),
    Need("sqlite", "sql", "aiosqlite", f'{STORE}"sqlite:///x.db"\n', HANDLER),
    Need("postgresql", "sql", "asyncpg", f'{STORE}"postgresql+asyncpg://db/x"\n', HANDLER),
    Need("postgresql+psycopg", "sql", "psycopg", f'{STORE}"postgresql+psycopg://db/x"\n', HANDLER),
    Need("any SQL", "sql", "sqlalchemy", f'{STORE}"sqlite:///x.db"\n', HANDLER),
    Need("redis", "redis", "redis", f'{STORE}"redis://cache"\n', HANDLER),
    Need("avro in", "avro", "fastavro", f'{REGISTRY}{IN}value_deserializer = "avro"\n', HANDLER),
    Need("avro out", "avro", "fastavro", f'{REGISTRY}{OUT}value_serializer = "avro"\n', EMITTER),
    Need("avro keys", "avro", "fastavro", f'{REGISTRY}{IN}key_deserializer = "avro"\n', HANDLER),
    Need(
        "protobuf in",
        "protobuf",
        "google.protobuf",
        f'{REGISTRY}{IN}value_deserializer = "protobuf"\n',
        HANDLER,
    ),
    Need(
        "protobuf out",
        "protobuf",
        "google.protobuf",
        f'{REGISTRY}{OUT}value_serializer = "protobuf"\n',
        EMITTER,
    ),
    Need(
        "json-schema in",
        "json-schema",
        "jsonschema",
        f'{REGISTRY}{IN}value_deserializer = "json-schema"\n',
        HANDLER,
    ),
    Need(
        "json-schema out",
        "json-schema",
        "jsonschema",
        f'{REGISTRY}{OUT}value_serializer = "json-schema"\n',
        EMITTER,
    ),
    Need("tracing", "otel", "opentelemetry", f"[tracing]\nenabled = true\n{IN}", HANDLER),
    Need("spark", "spark", "pyspark", IN, ON_SPARK),
    Need(
        "spark remote", "connect", "grpc", f'[spark]\nremote = "sc://server:15002"\n{IN}', ON_SPARK
    ),
    Need(
        "cron",
        "cron",
        "cronsim",
        IN,
        f'{HANDLER}@app.cron("0 3 * * *")\nasync def nightly() -> None: ...\n',
    ),
)

BOTH_WAYS = ("compression = zstd", "compression of letters", "embedded", "avro in", "sqlite")
"""The start goes the same way as `check`: some of them show it."""

ENDS = {
    "check": "import reactive_kafka.cli\n"
    "sys.argv = ['reactive-kafka', 'check', 'service:app', '--app-dir', '.']\n"
    "reactive_kafka.cli.main()\n",
    "start": "import asyncio, service\nasyncio.run(service.app.start())\n",
}


CASES = [("check", need) for need in NEEDS] + [
    ("start", need) for need in NEEDS if need.name in BOTH_WAYS
]


@pytest.mark.parametrize(("end", "need"), CASES, ids=str)
def test_what_a_setting_needs_is_named_with_the_command_that_installs_it(
    end: str, need: Need, tmp_path: Path
) -> None:
    (tmp_path / "reactive-kafka.toml").write_text(need.config)
    (tmp_path / "service.py").write_text(
        f"from reactive_kafka import App\napp = App('reactive-kafka.toml')\n{need.code}"
    )
    blocked = f"import sys\nsys.path.insert(0, '.')\nsys.modules[{need.missing!r}] = None\n"
    ended = subprocess.run(
        [sys.executable, "-c", blocked + ENDS[end]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode != 0, ended.stdout
    assert f"pip install '.[{need.extra}]'" in ended.stderr, ended.stderr[-500:]
    if end == "check":
        assert ended.returncode == 2
        assert "Traceback" not in ended.stderr


def test_yaml_that_cannot_be_read_is_named_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("incoming:\n  orders:\n    group_id: g\n")
    code = "import sys\nsys.modules['yaml'] = None\nfrom reactive_kafka import App\nApp('service.yaml').configure()\n"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert "pip install '.[yaml]'" in ended.stderr
