"""A TCP proxy that hurts what passes: delays, loses, holds, refuses, resets and garbles connections
to a broker.

What it did is counted, so that a test can show that its fault happened.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Self

_READ_BYTES = 65_536
# What a rate slows down comes in pieces that take so long, as it does from a network.
_SLOW_PIECE_S = 0.1
# Linux sends a lost packet again after that at the earliest.
_RESENT_AFTER_S = 0.2
HOST = "127.0.0.1"


class Direction:
    """The faults of one direction of all connections."""

    def __init__(self) -> None:
        # Before each piece is passed on.
        self.delay_s = 0.0
        # 0: unlimited.
        self.bytes_per_s = 0.0
        # Share of pieces that arrive late, as they would after a packet was lost and sent again.
        self.loss = 0.0
        # Such pieces so far.
        self.lost = 0
        # Pieces that were delayed or slowed down so far.
        self.late = 0
        # Of pieces that came while nothing was passed on.
        self.held_bytes = 0
        # Sees each piece before anything is done to it.
        self.watch: Callable[[bytes], None] | None = None
        self._flips_left = 0
        self._open = asyncio.Event()
        self._open.set()
        self._random = random.Random(1)

    def hold(self) -> None:
        """Pass nothing on and read nothing more, with connections open: half-open, then a zero
        window.
        """
        self._open.clear()

    def release(self) -> None:
        """Pass on what was held, and go on."""
        self._open.set()

    def flip_bytes(self, times: int = 1) -> None:
        """Garble one byte in the last quarter of each of the next *times* pieces."""
        self._flips_left += times

    async def treat(self, piece: bytes) -> bytes:
        """The piece as it comes out, when its time has come."""
        if self.watch is not None:
            self.watch(piece)
        self.late += bool(self.delay_s or self.bytes_per_s)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.bytes_per_s:
            await asyncio.sleep(len(piece) / self.bytes_per_s)
        while self.loss and self._random.random() < self.loss:
            self.lost += 1
            await asyncio.sleep(_RESENT_AFTER_S)
        if not self._open.is_set():
            self.held_bytes += len(piece)
            await self._open.wait()
        if not self._flips_left:
            return piece
        self._flips_left -= 1
        garbled = bytearray(piece)
        at = self._random.randrange(len(garbled) * 3 // 4, len(garbled))
        garbled[at] ^= 0xFF
        return bytes(garbled)


class Proxy:
    """Listens on a port of its own and passes everything to *upstream* and back, with faults at
    will.

    Args:
        upstream: ``host:port`` of the broker.
        port: Where to listen; 0 takes a free one.
    """

    def __init__(self, upstream: str, port: int = 0) -> None:
        host, _, number = upstream.rpartition(":")
        self._upstream = (host, int(number))
        self._port = port
        # From clients to the broker.
        self.requests = Direction()
        self.answers = Direction()
        # Resets each connection as it comes.
        self.is_refusing = False
        self.accepted = 0
        self.refused = 0
        # Connections that were reset.
        self.cut = 0
        # For each connection: sees what clients send.
        self.tap: Callable[[], Callable[[bytes], None]] | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._transports: set[asyncio.WriteTransport] = set()
        self._gates: set[asyncio.Event] = set()

    @property
    def address(self) -> str:
        """``host:port`` for clients, to be advertised by the broker."""
        return f"{HOST}:{self._port}"

    @property
    def connections(self) -> int:
        """How many connections of clients are open."""
        return len(self._connections)

    def hold(self) -> None:
        """Pass nothing on in either direction."""
        self.requests.hold()
        self.answers.hold()

    def release(self) -> None:
        """Pass on what was held in either direction, and go on."""
        self.requests.release()
        self.answers.release()

    def reset_all(self) -> int:
        """Cut every connection with a reset, as a failing firewall does; returns how many."""
        cut = self.connections
        for transport in tuple(self._transports):
            _reset(transport)
        self.cut += cut
        return cut

    def forget(self) -> int:
        """Leave every connection open and pass nothing on in it ever again, as a router does that
        was restarted.

        New connections pass. Returns how many were forgotten.
        """
        for gate in self._gates:
            gate.clear()
        return len(self._gates)

    async def start(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, HOST, self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.is_refusing:
            self.refused += 1
            _reset(writer.transport)
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            # By stop(); a streams server would report it as an error.
            pass
        finally:
            self._connections.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            _reset(writer.transport)
            return
        ends = {writer.transport, up_writer.transport}
        self._transports |= ends
        gate = asyncio.Event()
        gate.set()
        self._gates.add(gate)
        try:
            pumps = [
                asyncio.create_task(
                    _pump(reader, up_writer, self.requests, gate, self.tap and self.tap())
                ),
                asyncio.create_task(_pump(up_reader, writer, self.answers, gate)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._transports -= ends
            self._gates.discard(gate)
            for end in ends:
                end.abort()


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    faults: Direction,
    gate: asyncio.Event,
    tap: Callable[[bytes], None] | None = None,
) -> None:
    # Either end is gone: so is the connection.
    with suppress(OSError):
        while piece := await reader.read(_READ_BYTES):
            if tap is not None:
                tap(piece)
            part = round(faults.bytes_per_s * _SLOW_PIECE_S) or len(piece)
            for at in range(0, len(piece), part):
                treated = await faults.treat(piece[at : at + part])
                await gate.wait()
                writer.write(treated)
                await writer.drain()


def _reset(transport: asyncio.WriteTransport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        # close() sends RST.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
