import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.spark_cluster import SparkProcess, until

pytestmark = pytest.mark.spark

STARTING = """
import asyncio, sys
from pathlib import Path
from tests.harness.spark_cluster import SparkCluster

async def main():
    async with SparkCluster(Path(sys.argv[1]), workers=1) as cluster:
        print(cluster.master.pid, cluster.workers[0].pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_test_run_that_is_killed_leaves_no_process_of_spark(tmp_path: Path) -> None:
    test_run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTING, str(tmp_path)), stdout=asyncio.subprocess.PIPE
    )
    assert test_run.stdout is not None
    pids = [int(pid) for pid in (await asyncio.wait_for(test_run.stdout.readline(), 120)).split()]
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)
    test_run.send_signal(signal.SIGKILL)
    await test_run.communicate()
    await until(lambda: not any(is_alive(pid) for pid in pids), "Spark's processes are gone", 10)


async def test_a_process_that_does_not_start_says_why_and_is_gone(tmp_path: Path) -> None:
    process = SparkProcess("nonsense", ["spark-class", "org.apache.spark.Nonsense"], tmp_path)
    process.start()
    with pytest.raises(
        RuntimeError, match=r"nonsense ended\n(.*\n)*.*class org.apache.spark.Nonsense"
    ):
        await process.started(lambda: False)
    process.kill()
    assert process.pid is None


def is_alive(pid: int) -> bool:
    try:
        # A zombie waits for whoever adopted it.
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
