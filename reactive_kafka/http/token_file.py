"""The token of the HTTP server, read again when its file changes, so that it can be rotated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.config.config_files import exposure_of, read_secret
from reactive_kafka.config.kinds import TOKEN
from reactive_kafka.config.secrets import Secret

LOOKED_AT_EVERY_S = 1.0
"""How often the file is looked at, at most. A rotated token counts that much later at the latest.
"""

logger = logging.getLogger("reactive_kafka.http")

_FileVersion = tuple[int, int, int]


class TokenFile:
    """The token that requests need at the moment.

    A file that has gone, or holds no token, changes nothing: the last token still counts, and a
    warning says so. Otherwise a mistake in a rotation would open the server, or lock everybody out.

    Args:
        token: As the configuration had it at the start; None: there is none.
        now: The monotonic time in seconds.
    """

    def __init__(
        self, token: str | None, now: Callable[[], float] = SYSTEM_CLOCK.monotonic
    ) -> None:
        self._token = token
        self._path = token.file if isinstance(token, Secret) else None
        self._now = now
        self._looked_at = now()
        # The file as it was read last. None: it was not there, or was not read here yet.
        self._version: _FileVersion | None = None
        if self._path is not None:
            # The configuration read it at the start, and the first request may come much later.
            self._read_again(self._path)

    @property
    def token(self) -> str | None:
        """The token; None: the server has none."""
        if self._path is not None and self._now() - self._looked_at >= LOOKED_AT_EVERY_S:
            self._looked_at = self._now()
            self._read_again(self._path)
        return self._token

    def _read_again(self, path: str) -> None:
        version = _version_of(path)
        if version == self._version:
            return
        self._version = version
        try:
            token = TOKEN.parse(read_secret(path))
        except ValueError as error:
            logger.warning("[http] token_file = %r: %s; the last token still counts", path, error)
            return
        if token == self._token:
            return
        self._token = Secret(token, path)
        logger.info("[http] token_file = %r: the token has changed", path)
        if (exposure := exposure_of(path)) is not None:
            logger.warning("[http] token_file: %s", exposure)


def _version_of(path: str) -> _FileVersion | None:
    """Return what changes with the content of a file; None if it cannot be looked at."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
