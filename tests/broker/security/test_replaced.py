"""Files of certificates that are replaced while the application runs are taken with the next
connection.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.broker.security.guarded import Guarded
from tests.broker.security.service import serving

pytestmark = pytest.mark.kafka

SOON_S = 20.0
"""A client that can reach no broker is replaced after a minute: that is not what is shown here."""


class Files:
    """What a client has been given, and what becomes of it."""

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        self._guarded = guarded
        self._folder = folder
        self.put("ours.crt", "ca.crt")
        self.put("client.crt", "tls.crt")
        self.put("client.key", "tls.key")
        files = {"ssl_cafile": "ca.crt", "ssl_certfile": "tls.crt", "ssl_keyfile": "tls.key"}
        self.settings = {name: str(folder / file) for name, file in files.items()}

    def put(self, name: str, file: str) -> None:
        """Replace a file, as those do who issue certificates: it is whole at every moment."""
        shutil.copy(self._guarded.folder / name, self._folder / "new")
        (self._folder / "new").replace(self._folder / file)

    @contextmanager
    def other_authority(self) -> Iterator[Callable[[], None]]:
        """The broker gets a certificate of another authority, and then the client that
        authority's.
        """
        self._guarded.show_certificate("SHORT", "server-foreign")
        try:
            yield lambda: self.put("foreign.crt", "ca.crt")
        finally:
            self._guarded.show_certificate("SHORT", "server")

    @contextmanager
    def other_client(self) -> Iterator[Callable[[], None]]:
        """The broker trusts clients of another authority only, and then the client gets its
        certificate.
        """

        def replace() -> None:
            # For a moment certificate and key do not fit together.
            self.put("client-foreign.crt", "tls.crt")
            self.put("client-foreign.key", "tls.key")

        self._guarded.trust("SHORT", "foreign")
        try:
            yield replace
        finally:
            self._guarded.trust("SHORT", "ours")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Files.other_authority, "unable to get local issuer certificate"),
        (
            Files.other_client,
            "the broker wants a certificate of the client's, or refuses the one of ssl_certfile",
        ),
    ],
    ids=["authority", "client"],
)
async def test_files_that_are_replaced_while_it_runs_are_taken_with_the_next_connection(
    guarded: Guarded,
    tmp_path: Path,
    other: Callable[[Files], AbstractContextManager[Callable[[], None]]],
    words: str,
) -> None:
    """Row J7 of the faults."""
    files = Files(guarded, tmp_path)
    settings = guarded.way("SCRAM-SHA-256", "SHORT") | files.settings
    channel = {"group_protocol": "classic", "session_timeout_ms": 30_000}
    async with serving(guarded, settings, channel=channel) as service:
        await service.send(b"1", b"bad 2", b"3")
        await service.until_committed(3)
        with other(files) as replace:
            await service.until_named("no broker answers", words)
            await service.send(b"4", b"bad 5", b"6")
            replace()
            await service.until_committed(6, SOON_S)
            await service.until_ready(SOON_S)
        assert service.handled == [b"1", b"bad 2", b"3", b"4", b"bad 5", b"6"]
        assert await service.dead_letters() == [b"bad 2", b"bad 5"]
        assert service.assignments == 1
