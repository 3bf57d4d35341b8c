"""What a supervisor needs: next to nothing, because it handles no records."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"aiokafka", "pydantic", "prometheus_client", "pyspark", "confluent_kafka"}


def test_a_supervisor_loads_no_client_no_models_and_no_metrics_library() -> None:
    code = (
        "import sys\n"
        "import reactive_kafka.cli.commands, reactive_kafka.cli.run_command\n"
        "import reactive_kafka.cli.workers.worker_supervisor, reactive_kafka.http.server\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "uvicorn" in loaded
    assert loaded & HEAVY == set()
