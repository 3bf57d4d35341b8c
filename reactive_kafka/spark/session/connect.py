"""Opens sessions on a Spark Connect server: the driver is there, and no Java is needed here.
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
    close,
    guard,
    is_gone,
    limited,
    need_remote,
    said,
)
from reactive_kafka.spark.session.debug_lines import hide

logger = logging.getLogger("reactive_kafka.spark")

OPEN_LIMIT_S = 20.0
# Beyond spark.python.task.killTimeout: executors look for killed tasks every 2 s.
KILL_MARGIN_S = 3.0
_NEEDED = ("pyspark", "pyarrow", "pandas", "grpc", "grpc_status", "google.rpc", "zstandard")


def check_connect() -> None:
    """Raise MissingExtraError unless the packages of a Connect session are installed; nothing is
    imported.
    """
    if not all(_is_installed(name) for name in _NEEDED):
        raise MissingExtraError("[spark] remote", "connect")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        # Its parent is missing; somebody put None in sys.modules.
        return False


def version_trouble(client: str, server: str) -> str | None:
    """Why these two versions of Spark do not work together; None if they do."""
    # Source: Spark Connect overview, "upgradability": a server serves older clients of its major
    # version.
    ours = _minor(client)
    theirs = _minor(server)
    if ours[:1] == theirs[:1] and ours <= theirs:
        return None
    wanted = ".".join(map(str, theirs))
    return f"the server is Spark {server} and this process has PySpark {client}: pip install 'pyspark=={wanted}.*'"


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def seconds(duration: str) -> float:
    """A duration as Spark writes it (``200ms``, ``2s``; a bare number is milliseconds), in
    seconds.
    """
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
        # The client of an open() that is under way.
        self._opening: Any = None
        # Properties that the last session was opened without.
        self._left_out: list[str] = []
        # Id of a session that was left behind -> the server's own id.
        self._left: dict[str, str | None] = {}

    def open(self) -> ConnectSession:
        """Open a session, and end the jobs of those that were left behind. Takes less than half a
        minute.
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
            builder.add_interceptor(guard(running))
            spark = SparkSession(builder)
            client = self._opening = _patient_for_a_moment(spark.client)
            with limited(OPEN_LIMIT_S, partial(close, client)):
                if trouble := version_trouble(pyspark.__version__, spark.version):
                    raise OffloadError(trouble)
                conf = self._settings.conf
                secrets = secret_names(self._settings)
                hide((*secrets, *(spelled(conf[name]) for name in secrets if name in conf)))
                self._tell_left_out(_configure(spark, self._settings.conf))
                kill_timeout_s = seconds(str(spark.conf.get("spark.python.task.killTimeout", "2s")))
                self._end_what_was_left(remote, kill_timeout_s + KILL_MARGIN_S)
        except Exception as error:
            need_remote(running, False)
            if client is not None:
                close(client)
            raise OffloadError(f"{shown(remote)}: {said(error)}") from error
        finally:
            self._opening = None
        return ConnectSession(
            spark, running, shown(remote), kill_timeout_s + KILL_MARGIN_S, self._left
        )

    def abort(self) -> None:
        # open() may end meanwhile.
        if (client := self._opening) is not None:
            close(client)

    def _tell_left_out(self, names: list[str]) -> None:
        # Not again for each session.
        if names and names != self._left_out:
            logger.warning(
                "[spark.conf] %s: only the start of a Spark Connect server can set this; it is left out",
                ", ".join(map(repr, names)),
            )
        self._left_out = names

    def _end_what_was_left(self, remote: str, settle_s: float) -> None:
        """End the jobs of lost sessions: the server would go on with them for minutes."""
        at_work = False
        for session_id, observed in list(self._left.items()):
            client = _client_of(remote, session_id, observed)
            try:
                at_work |= bool(client.interrupt_all())
                client.release_session()
            except Exception as error:
                if not is_gone(error):
                    raise
            finally:
                close(client)
            del self._left[session_id]
        if at_work:
            time.sleep(settle_s)


def shown(remote: str) -> str:
    """The address without its parameters: one of them may be a token."""
    return remote.partition("/;")[0]


def _builder(remote: str) -> Any:
    from pyspark.sql.connect.client import DefaultChannelBuilder

    # A pool of its own, or a new channel would share the old one's pause between attempts to
    # connect.
    return DefaultChannelBuilder(remote, [("grpc.use_local_subchannel_pool", 1)])


def _patient_for_a_moment(client: Any) -> Any:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # Our own log has the reason.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    # Not minutes.
    client.set_retry_policies(
        [DefaultPolicy(max_retries=3, initial_backoff=50, backoff_multiplier=2)]
    )
    return client


def _client_of(remote: str, session_id: str, observed: str | None) -> Any:
    from pyspark.sql.connect.client import SparkConnectClient

    builder = _builder(remote)
    builder.set("session_id", session_id)
    client = _patient_for_a_moment(SparkConnectClient(builder))
    # A restarted server then refuses it, instead of making a session.
    client._server_session_id = observed
    return client


def _configure(spark: Any, conf: Mapping[str, Any]) -> list[str]:
    """Set the properties of a session; the names of those that its server does not let a session
    set.
    """
    refused = []
    for name, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
        try:
            spark.conf.set(name, spelled(value))
        except Exception as error:
            # Of its driver, its executors, or fixed for all sessions.
            if "CANNOT_MODIFY" not in str(error):
                raise
            refused.append(name)
    return refused
