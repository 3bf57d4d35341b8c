"""Opens sessions on a Spark Connect server, which has the driver: no Java is needed here.

Everything blocks.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import warnings
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from reactive_kafka.config.secrets import revealed
from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.errors import MissingExtraError, OffloadError
from reactive_kafka.spark.session.classic import silence_query_contexts
from reactive_kafka.spark.session.conf import secret_names, spelled
from reactive_kafka.spark.session.connect_session import (
    ConnectSession,
    cancel_guard,
    close,
    is_gone,
    limited,
    need_remote,
    reason_in_one_line,
)
from reactive_kafka.spark.session.debug_lines import hide

logger = logging.getLogger("reactive_kafka.spark")

OPEN_LIMIT_S = 20.0
# A Connect server does not say which tasks are active. So a cancelled group counts as over after
# spark.python.task.killTimeout and this time: executors look for killed tasks every 2 s.
KILL_MARGIN_S = 3.0
_NEEDED = ("pyspark", "pyarrow", "pandas", "grpc", "grpc_status", "google.rpc", "zstandard")


def check_connect() -> None:
    """Check that the packages for Connect sessions are installed, without importing them.

    Raises:
        MissingExtraError: One is missing.
    """
    if not all(_is_installed(name) for name in _NEEDED):
        raise MissingExtraError("[spark] remote", "connect")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        # The parent package is missing, or sys.modules has None for the name.
        return False


def version_trouble(client: str, server: str) -> str | None:
    """Return why these two versions of Spark do not work together, or None if they do.

    A server serves older clients of its major version.
    Source: Spark Connect overview, "upgradability".
    """
    ours = _minor(client)
    theirs = _minor(server)
    if ours[:1] == theirs[:1] and ours <= theirs:
        return None
    wanted = ".".join(map(str, theirs))
    return (
        f"the server is Spark {server} and this process has PySpark {client}:"
        f" pip install 'pyspark=={wanted}.*'"
    )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def seconds(duration: str) -> float:
    """Return a duration of Spark in seconds: ``200ms``, ``2s``; a bare number is milliseconds."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", duration.lower())
    units = {
        "": 0.001,
        "us": 1e-6,
        "ms": 0.001,
        "s": 1.0,
        "m": 60.0,
        "min": 60.0,
        "h": 3600.0,
        "d": 86400.0,
    }
    if match is None or match[2] not in units:
        raise OffloadError(f"{duration!r} is no duration of Spark's")
    return int(match[1]) * units[match[2]]


class ConnectMaker:
    """Opens sessions on the server that ``[spark] remote`` names."""

    # An attempt is cheap, and a server that is back should be found soon.
    longest_retry_s = 5.0

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        # The client of an `open` that is running.
        self._opening: Any = None
        # The properties that the last session could not set.
        self._refused: list[str] = []
        # Id of a session that was left behind -> the server's id.
        self._left_behind: dict[str, str | None] = {}

    def open(self) -> ConnectSession:
        """Open a session, and end the jobs of sessions that were left behind.

        It takes less than half a minute.
        """
        import pyspark
        from pyspark.sql.connect.session import SparkSession

        silence_query_contexts()
        remote = str(revealed(self._settings.remote))
        running = threading.local()
        client = None
        need_remote(running, True)
        try:
            builder = _builder(remote)
            builder.add_interceptor(cancel_guard(running))
            spark = SparkSession(builder)
            client = _with_few_retries(spark.client)
            self._opening = client
            with limited(OPEN_LIMIT_S, partial(close, client)):
                trouble = version_trouble(pyspark.__version__, spark.version)
                if trouble:
                    raise OffloadError(trouble)
                conf = self._settings.conf
                secrets = secret_names(self._settings)
                hide((*secrets, *(spelled(conf[name]) for name in secrets if name in conf)))
                self._report_refused(_configure(spark, self._settings.conf))
                kill_timeout_s = seconds(str(spark.conf.get("spark.python.task.killTimeout", "2s")))
                self._end_sessions_left_behind(remote, kill_timeout_s + KILL_MARGIN_S)
        except Exception as error:
            need_remote(running, False)
            if client is not None:
                close(client)
            raise OffloadError(f"{shown(remote)}: {reason_in_one_line(error)}") from error
        finally:
            self._opening = None
        return ConnectSession(
            spark, running, shown(remote), kill_timeout_s + KILL_MARGIN_S, self._left_behind
        )

    def abort(self) -> None:
        # `open` may end in its thread meanwhile, so read this once.
        client = self._opening
        if client is not None:
            close(client)

    def _report_refused(self, names: list[str]) -> None:
        # Log it once, and not for each session.
        if names and names != self._refused:
            logger.warning(
                "[spark.conf] %s: only the start of a Spark Connect server can set this; it is"
                " left out",
                ", ".join(map(repr, names)),
            )
        self._refused = names

    def _end_sessions_left_behind(self, remote: str, settle_s: float) -> None:
        """End the jobs of lost sessions, which the server would otherwise run for minutes."""
        had_jobs = False
        for session_id, server_session_id in list(self._left_behind.items()):
            client = _client_of(remote, session_id, server_session_id)
            try:
                if client.interrupt_all():
                    had_jobs = True
                client.release_session()
            except Exception as error:
                if not is_gone(error):
                    raise
            finally:
                close(client)
            del self._left_behind[session_id]
        if had_jobs:
            time.sleep(settle_s)


def shown(remote: str) -> str:
    """Return the address without its parameters, since one of these may be a token."""
    return remote.partition("/;")[0]


def _builder(remote: str) -> Any:
    from pyspark.sql.connect.client import DefaultChannelBuilder

    # Without a pool of its own, a new channel would share the pause between attempts to connect
    # with the old one.
    return DefaultChannelBuilder(remote, [("grpc.use_local_subchannel_pool", 1)])


def _with_few_retries(client: Any) -> Any:
    """Make a client fail after a moment; by default it tries for minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # Our own log has the reason.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    client.set_retry_policies(
        [DefaultPolicy(max_retries=3, initial_backoff=50, backoff_multiplier=2)]
    )
    return client


def _client_of(remote: str, session_id: str, server_session_id: str | None) -> Any:
    from pyspark.sql.connect.client import SparkConnectClient

    builder = _builder(remote)
    builder.set("session_id", session_id)
    client = _with_few_retries(SparkConnectClient(builder))
    # With this id a restarted server refuses the client. Without it, it would make a new session.
    client._server_session_id = server_session_id
    return client


def _configure(spark: Any, conf: Mapping[str, Any]) -> list[str]:
    """Set the properties of a session, and return the names of those that the server refuses."""
    refused = []
    for name, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
        try:
            spark.conf.set(name, spelled(value))
        except Exception as error:
            # It is a property of the driver or the executors, or it is fixed for all sessions.
            if "CANNOT_MODIFY" not in str(error):
                raise
            refused.append(name)
    return refused
