"""What a process listens on, as Linux tells it."""

from __future__ import annotations

import socket
from pathlib import Path

LISTENING = "0A"
PROC = Path("/proc")


def listening(pid: int) -> set[tuple[str, int]]:
    """The local addresses and ports of the TCP sockets that a process listens on."""
    mine = set()
    for link in (PROC / str(pid) / "fd").iterdir():
        try:
            mine.add(str(link.readlink()))
        except FileNotFoundError:
            # The process has closed it in the meantime.
            continue
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in mine:
                address, port = fields[1].split(":")
                words = bytes.fromhex(address)
                packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found
