"""The two tables of the README that compare us with our peers.

``python -m benchmarks.peers.front_page`` copies them from ``benchmarks/peers_results.md``, which
``make bench-peers`` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "peers_results.md"
README = ROOT / "README.md"

Cells = dict[str, str]
"""Column -> text, of one row of a table."""

SAFETY = "Lost and repeated"
NO_OP = "A handler that does nothing"
WAITING = "A handler that waits 10 ms, about 1,000 at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One line of both tables: the names of its rows on the page of results.

    Args:
        safety: Its row among those that were killed.
        no_op: Its fastest row, among those that keep its best guarantee.
        waiting: The same with handlers that wait; None where it handles one record at a time.
    """

    name: str
    safety: str
    no_op: str
    waiting: str | None


PEERS = (
    Peer(
        name="**reactive_kafka**",
        safety="reactive_kafka",
        no_op="reactive_kafka, `Message`",
        waiting="reactive_kafka, `concurrency = 1000`",
    ),
    Peer(
        name="aiokafka",
        safety="aiokafka `getmany(500)`",
        no_op="aiokafka `getmany(500)`",
        waiting="aiokafka, `gather` over 1,000",
    ),
    Peer(
        name="confluent-kafka",
        safety="confluent-kafka `consume(500)`",
        no_op="confluent-kafka `consume(500)`",
        waiting=None,
    ),
    Peer(
        name="FastStream, batches",
        safety="FastStream `batch=True`, `ACK`",
        no_op="FastStream `batch=True`, `ACK`",
        waiting="FastStream `batch=True`, `ACK`, `gather`",
    ),
    Peer(
        name="kstreams",
        safety="kstreams `GetMany(500)`, own commit",
        no_op="kstreams `GetMany(500)`",
        waiting=None,
    ),
    Peer(
        name="Faust",
        safety="Faust",
        no_op="Faust",
        waiting="Faust, `concurrency=1000`",
    ),
    Peer(
        name="Quix Streams",
        safety="Quix Streams",
        no_op="Quix Streams",
        waiting=None,
    ),
    Peer(
        name="Arroyo",
        safety="Arroyo `RunTask`",
        no_op="Arroyo `RunTask`",
        waiting="Arroyo `RunTaskInThreads`, 1,000",
    ),
    Peer(
        name="SmallRye (Java)",
        safety="SmallRye, throttled",
        no_op="SmallRye, throttled",
        waiting="SmallRye, throttled, `merge(1000)`",
    ),
    Peer(
        name="parallel-consumer (Java)",
        safety="parallel-consumer, unordered, 1,000",
        no_op="parallel-consumer, unordered",
        waiting="parallel-consumer, unordered, 1,000",
    ),
)


def table_of(results: str, heading: str) -> dict[str, Cells]:
    """The rows of the table below *heading*, by the text of their first column.

    Raises:
        LookupError: The page has no such heading.
    """
    _, found, rest = results.partition(f"\n## {heading}\n")
    if not found:
        raise LookupError(f"{RESULTS.name} has no heading {heading!r}")
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def safety(results: str) -> list[str]:
    """What each of the peers lost and repeated."""
    rows = table_of(results, SAFETY)
    lines = [
        "| | guarantee | lost | repeated after 3 kills | repeated in 2 rolling restarts |",
        "|---|---|---:|---:|---:|",
    ]
    for peer in PEERS:
        cells = rows[peer.safety]
        columns = (
            cells["guarantee"],
            cells["lost"],
            cells["repeated after 3 kills"],
            cells["repeated in 2 rolling restarts"],
        )
        lines.append(f"| {peer.name} | {' | '.join(columns)} |")
    return lines


def speed(results: str) -> list[str]:
    """How many records a second each of the peers handled."""
    no_op = table_of(results, NO_OP)
    waiting = table_of(results, WAITING)
    lines = [
        "| records per second | a handler that does nothing | CPU µs | a handler that waits 10 ms |"
        " CPU µs |",
        "|---|---:|---:|---:|---:|",
    ]
    for peer in PEERS:
        columns = [*_speed(no_op[peer.no_op])]
        if peer.waiting is None:
            columns += ["fewer than 100", ""]
        else:
            columns += _speed(waiting[peer.waiting])
        lines.append(f"| {peer.name} | {' | '.join(columns)} |")
    return lines


def _speed(cells: Cells) -> tuple[str, str]:
    rate, _, _ = cells["records/s, median (lowest - highest)"].partition(" (")
    return rate, cells["CPU µs per record"]


def with_tables(readme: str, results: str) -> str:
    """The README with the tables of *results* between their marks."""
    text = between(readme, "peers: safety", safety(results))
    return between(text, "peers: speed", speed(results))


def between(text: str, mark: str, lines: Sequence[str]) -> str:
    """The text with these lines between the two marks of this name."""
    before, rest = text.split(f"<!-- {mark} -->\n")
    _, after = rest.split(f"<!-- /{mark} -->\n")
    table = "\n".join(lines)
    return f"{before}<!-- {mark} -->\n{table}\n<!-- /{mark} -->\n{after}"


def main() -> None:
    """Write the tables into the README."""
    README.write_text(with_tables(README.read_text(), RESULTS.read_text()))


if __name__ == "__main__":
    main()
