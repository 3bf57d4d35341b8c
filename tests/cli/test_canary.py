"""A whole service with Spark: its secrets are seen nowhere, and it listens only where the
configuration says.

Every secret has one word in it. It is looked for in what anybody else on the machine, or on its
network, may see.
"""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import COMMAND, running
from tests.faults.driver import free_port
from tests.faults.processes import descendants
from tests.harness.sockets import listening

CANARY, NUMBER = "canary8d1f", "4711471147"
APP = """\
import hashlib
import logging
from pathlib import Path

from reactive_kafka import App

for name in (None, "aiokafka", "py4j", "py4j.clientserver", "py4j.java_gateway", "reactive_kafka", "sqlalchemy"):
    logging.getLogger(name).setLevel(logging.DEBUG)
app = App()
settings = app.configure("reactive-kafka.toml")


@app.outgoing("numbers")
async def numbers():
    yield {"n": 1}


@app.spark("clicks")
def count(df, batch):
    hadoop = batch.spark.sparkContext._jsc.hadoopConfiguration()
    names = ("my.password", "store.key", "given.password", "number.token")
    text = " ".join(hadoop.get(name) for name in names)
    logging.getLogger("service").info("conf %s of %s", settings.spark.conf, batch.spark)
    Path("seen").write_text(hashlib.sha256(text.encode()).hexdigest() + f" {df.count()}")
    raise RuntimeError(f"cannot use {settings}")


@app.incoming("locked")
async def locked(order: bytes) -> None: ...


@app.incoming("kept")
async def kept(order: bytes) -> None: ...
"""
CONFIG = """\
[kafka]
bootstrap_servers = "embedded"
group_id = "shop"

[http]
port = {port}
token = "{canary}"

[outgoing.numbers]
topic = "clicks"

[incoming.clicks]
auto_offset_reset = "earliest"
failure_strategy = "ignore"
spark.batch_max_wait = "100ms"

[incoming.locked]
bootstrap_servers = "127.0.0.1:1"
security_protocol = "SASL_PLAINTEXT"
sasl_plain_username = "shop"
sasl_plain_password_file = "password"
dead_letter_queue.topic = "x"
failure_strategy = "dead-letter-queue"

[incoming.kept]
commit_strategy = "checkpoint"
checkpoint.store = "postgresql+asyncpg://shop:{canary}@127.0.0.1:1/shop?sslpassword={canary}"

[spark]
master = "local[1]"

[spark.conf]
"spark.hadoop.my.password" = "{canary} \\\\ = ü"
"spark.hadoop.store.key" = "{canary}"
"spark.hadoop.given.password" = "from the environment"
"spark.hadoop.number.token" = {number}
"spark.ui.enabled" = true
"spark.ui.port" = {ui_port}
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.dir" = "file://{folder}/events"
"""
HANDLER = """
@app.incoming("orders")
async def handle(order: bytes) -> None: ...
"""
PATHS = (
    "/",
    "/metrics",
    "/health",
    "/health/ready",
    "/health/live",
    "/health/started",
    "/api/channels",
    "/api/spark",
)


class Watch:
    """Looks at the processes below a service again and again: the launcher of a driver lives for a
    second.
    """

    def __init__(self, pid: int) -> None:
        # Process and command line -> its environment.
        self.seen: dict[tuple[int, str], str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(pid,), daemon=True)
        self._thread.start()

    def _look(self, pid: int) -> None:
        while not self._over.wait(0.02):
            for one in descendants(pid):
                if (one.pid, one.command) not in self.seen:
                    try:
                        environment = Path(f"/proc/{one.pid}/environ").read_text(errors="replace")
                    except OSError:
                        # It has just ended.
                        continue
                    self.seen[(one.pid, one.command)] = environment

    def end(self) -> None:
        self._over.set()
        self._thread.join(10.0)


def text_of_the_secrets() -> str:
    return " ".join([f"{CANARY} \\ = ü", CANARY, CANARY, NUMBER])


def get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        # Not ready: 503.
        return error.read().decode()


@pytest.fixture(scope="module")
def traces(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Where something may be seen -> what is seen there; and what the process and those below it
    listen on.
    """
    folder = tmp_path_factory.mktemp("canary")
    (folder / "events").mkdir()
    (folder / "shop.py").write_text(APP)
    port, ui_port = free_port(), free_port()
    config = CONFIG.format(port=port, ui_port=ui_port, folder=folder, canary=CANARY, number=NUMBER)
    (folder / "reactive-kafka.toml").write_text(config)
    (folder / "password").write_text(CANARY)
    (folder / "password").chmod(0o600)
    env = {"REACTIVE_KAFKA__SPARK__CONF__SPARK_HADOOP_GIVEN_PASSWORD": CANARY}
    with running(*COMMAND, "run", "shop:app", cwd=folder, env=env) as service:
        watch = Watch(service.process.pid)
        service.wait_for((folder / "seen").exists, "a batch on Spark", 120.0)
        service.wait_for(lambda: "cannot use" in service.err, "its failure")
        traces = {path: get(f"http://127.0.0.1:{port}{path}") for path in PATHS}
        traces |= _of_spark(f"http://127.0.0.1:{ui_port}")
        below = descendants(service.process.pid)
        sockets = {one.command.replace("\0", " ")[:60]: listening(one.pid) for one in below}
        ours = listening(service.process.pid)
        watch.end()
        service.process.terminate()
        ended = service.end()
    traces |= {"stdout": ended.out, "stderr": ended.err}
    traces |= {
        f"event log {file.name}": file.read_text()
        for file in folder.rglob("events*")
        if file.is_file()
    }
    traces |= {f"command line {pid}": command for pid, command in watch.seen}
    traces |= {f"environment {pid}": environment for (pid, _), environment in watch.seen.items()}
    yield (
        traces,
        {
            "ours": ours,
            "below": sockets,
            "http": port,
            "ui": ui_port,
            "seen": (folder / "seen").read_text(),
        },
    )


def _of_spark(ui: str) -> dict[str, str]:
    (application,) = json.loads(get(f"{ui}/api/v1/applications"))
    pages = ("/jobs/", "/environment/", "/executors/", "/SQL/")
    api = f"/api/v1/applications/{application['id']}"
    return {
        f"Spark's {page}": get(ui + page) for page in (*pages, f"{api}/environment", f"{api}/sql")
    }


@pytest.mark.spark
def test_spark_has_the_secrets(traces: tuple[dict[str, str], dict[str, Any]]) -> None:
    digest = hashlib.sha256(text_of_the_secrets().encode()).hexdigest()
    assert traces[1]["seen"] == f"{digest} 1"


@pytest.mark.spark
def test_a_secret_is_seen_nowhere(traces: tuple[dict[str, str], dict[str, Any]]) -> None:
    """Row S3 of the faults."""
    seen = traces[0]
    kinds = (
        "stderr",
        "event log ",
        "command line ",
        "environment ",
        "Spark's /environment/",
        "/api/channels",
        "/health",
    )
    assert all(any(where.startswith(kind) and seen[where] for where in seen) for kind in kinds)
    assert "--properties-file" in "".join(
        text for where, text in seen.items() if where.startswith("command line ")
    )
    # It is there, and its value is not.
    assert "spark.hadoop.my.password" in seen["Spark's /environment/"]
    assert {
        where
        for where in ("/", "/metrics", "/api/channels", "/api/spark")
        if "clicks" not in seen[where]
    } == set()
    assert {
        where for where in PATHS if where.startswith("/health") and '"status"' not in seen[where]
    } == set()
    assert "spark.hadoop.my.password" in "".join(
        seen[where] for where in seen if where.startswith("event log ")
    )
    assert '"sparkProperties"' in next(
        seen[where] for where in seen if where.endswith("/environment")
    )
    assert "Traceback (most recent call last)" in seen["stderr"]
    loggers = ("reactive_kafka.connections:", "py4j.clientserver:", "sqlalchemy.")
    assert [name for name in loggers if f"DEBUG   {name}" not in seen["stderr"]] == []
    assert "cannot use Settings(" in seen["stderr"]
    assert {where for where, text in seen.items() if CANARY in text or NUMBER in text} == set()


@pytest.mark.spark
def test_what_listens_is_configured_and_on_loopback(
    traces: tuple[dict[str, str], dict[str, Any]],
) -> None:
    """Row S13 of the faults."""
    found = traces[1]
    assert ("127.0.0.1", found["http"]) in found["ours"]
    below = set().union(*found["below"].values())
    assert found["ui"] in {port for _, port in below}
    assert {address for address, _ in found["ours"] | below} <= {"127.0.0.1", "::ffff:127.0.0.1"}


@pytest.mark.parametrize("enabled", [True, False])
def test_a_service_listens_on_its_http_port_only(enabled: bool, tmp_path: Path) -> None:
    """Row S13 of the faults."""
    port = free_port()
    (tmp_path / "shop.py").write_text("from reactive_kafka import App\napp = App()\n" + HANDLER)
    (tmp_path / "reactive-kafka.toml").write_text(
        f'[kafka]\nbootstrap_servers = "127.0.0.1:1"\ngroup_id = "shop"\n[incoming.orders]\n'
        f"[http]\nenabled = {str(enabled).lower()}\nport = {port}\n"
    )
    with running(*COMMAND, "run", "shop:app", cwd=tmp_path) as service:
        service.wait_for(lambda: "127.0.0.1:1" in service.err, "an attempt to connect")
        assert listening(service.process.pid) == ({("127.0.0.1", port)} if enabled else set())
