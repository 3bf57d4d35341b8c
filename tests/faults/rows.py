"""The rows of docs/faults.md: each fault, what must hold, and the tests that say so in their
docstrings.

A test claims rows with a line such as ``Row B4 of the faults.`` or ``Rows B1, B2 of the faults.``;
``python -m tests.faults.rows docs/faults.md`` rewrites the lists.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
BEGIN, END = "<!-- faults -->", "<!-- /faults -->"
_CLAIM = re.compile(r"\bRows? ([A-Z0-9, and-]+) of the faults\b")
_ID = re.compile(r"[A-Z]-?\d+")


class Row(NamedTuple):
    """One fault. ``fault`` is what happens; ``holds`` must hold in addition to the invariants."""

    id: str
    fault: str
    holds: str


class Claim(NamedTuple):
    """A test that says it plays a row."""

    row: str
    test: str


SECTIONS = {
    "A": "Brokers",
    "B": "Network",
    "C": "Groups",
    "D": "Process and event loop",
    "E": "Acks",
    "F": "The log and its records",
    "G": "Checkpoint stores",
    "H": "Dead letters",
    "I": "Spark",
    "J": "HTTP, command line, configuration",
    "S": "Security",
}

_ROWS = """
A1 | a partition's leader is killed | work continues without a rebalance
A2 | the group's coordinator is killed | the next commit goes to the new one
A3 | a leader is frozen for 2, 20, 90 s | its partitions continue with another leader
A4 | the nodes are restarted cleanly in turn | nothing is repeated, no rebalance
A5 | the nodes are killed and started in turn | nothing is lost
A6 | all brokers are away for a minute | alive, not ready, no busy loop, few log lines
A7 | the coordinator moves | a commit is repeated in the same assignment only
A8 | fewer replicas in sync than needed | a record stays unsettled until its dead letter is written
A9 | an unclean election truncates the log | noticed, and the policy decides
A10 | the controllers have no quorum | requests end at their deadlines
A11 | each request is answered with each error | retried, or reported at once
A12 | older and newer brokers | the same tests are green
A13 | only commits are refused | reading pauses, readiness gives the reason
A14 | an outage lasts longer than every limit | nothing is lost or becomes poison; it heals
B1 | a network cut, both ways, for 3, 15, 120 s | the member stops when its session is over
B2 | replies are cut | nothing is skipped
B3 | requests are cut | as B1
B4 | a cut from the coordinator only | the member starts nothing after its session
B5 | a cut from one leader only | other partitions continue; readiness names it
B6 | connections are refused, or reset again and again | nothing is lost; no busy loop
B7 | latency, up to more than the session | the member stays, or comes back
B8 | little bandwidth; a zero window | heartbeats get through
B9 | packet loss, half-open connections, flapping | noticed within the session
B10 | a host name that does not resolve, an address where nothing listens | the other addresses are used
C1 | members join and leave | members that leave properly repeat nothing
C2 | twenty members join at once | commits continue
C3 | a member is killed during a batch | few records are repeated, within a bound
C4 | a session ends while handlers run | no commit of the old assignment is stored
C5 | a commit is in flight during a rebalance | the assignment is checked when it is sent
C6 | an ack after the revocation | it returns False, and is counted
C7 | handlers are slower than the grace | the rebalance continues, the member stays
C8 | a standby is idle for long, then the owner dies | the standby takes over
C9 | one static name is used twice | one of them stops with a clear error
C10 | a foreign application is in the group | explained; foreign topics are never committed
C11 | positions are reset or deleted under a running service | reported; the next commit counts
C12 | a topic gets more partitions | they are read from their beginning
C13 | a new topic matches the pattern | as C12
C14 | the group has no committed position | it never starts at `latest` silently
D1 | SIGTERM, in every state | exit code 0, in time
D2 | SIGINT, SIGHUP | as D1
D3 | the event loop is blocked for 1, 15 s | reported with the calls that block it
D4 | a handler never returns | only its lane waits
D5 | unusual exceptions | never an ack
D6 | a handler raises or swallows CancelledError | no ack
D7 | a message is never settled | the poison watch reports it
D8 | slow handlers, fast producers | memory is bounded
D9 | the memory limit kills the process | as C3
D10 | the process runs out of descriptors | reported, no busy loop; heals
D11 | a handler forks | the child neither commits nor sends heartbeats
D12 | uvloop, debug mode, two members in one loop or two threads | the same results
D13 | a start or stop is interrupted | no task, socket or thread is left
D14 | the wall clock jumps | ages and intervals are not affected
D15 | the process is paused | as D3
E1 | verdicts twice, in any order | the first counts
E2 | verdicts come from threads and other loops | applied in order, on the channel's loop
E3 | verdicts come after the end | no error, no effect
E4 | acks in random order, the first one missing | the position stays, reading pauses
E5 | forged messages | refused
E6 | acks while a commit fails | nothing is lost
E7 | a part of a batch is acked | only that part is settled
E8 | each failure strategy | as documented
F1 | gaps in the log, at its end too | positions pass them
F2 | aborted transactions | never handled with `read_committed`
F3 | a transaction that never ends | readers wait, and readiness says so
F4 | retention passes the position | the lost records are counted exactly
F5 | records are deleted under a reader | as F4
F6 | a topic is deleted and recreated | noticed; nothing is skipped silently
F7 | broken batches | other partitions continue; one error
F8 | bytes flipped on disk | as F7; the offset is named
F9 | a record of 100 MB | delivered, or reported
F10 | a decompression bomb | reported; memory is bounded
F11 | missing and empty keys and values | handled
F12 | unusual headers | no crash
F13 | values that cannot be decoded | the failure strategy decides, with the raw bytes
F14 | unusual timestamps | no crash
F15 | one offset is delivered twice | handled once
F16 | one key or partition gets nearly everything | the others make progress
F17 | the schema registry is away, slow, wrong, or refuses | records wait; not ready, with the reason
F18 | the registry lacks or refuses a schema | the record cannot be decoded; later ones ask again
G1 | a crash at each step of writing | the old state or the new one
G2 | the disk is full | no commit beyond it, not ready; heals
G3 | the disk is read-only, or broken | as G2
G4 | the store is stopped, killed, slow | no commit goes ahead of the store
G5 | states are corrupt, foreign, too old or too new | refused with an explanation
G6 | two owners write | the late write is refused
G7 | state and position | both are stored, or neither
G8 | a crash between a transaction and its events, or Kafka is away | the events wait in the outbox, and each is sent
H-1 | the dead-letter topic is missing or forbidden | the record stays unsettled; not ready
H-2 | a dead letter is too large | headers are shortened, or it is reported
H-3 | the brokers of dead letters are away | written when they are back
H-4 | a crash between dead letter and commit | at most a second dead letter
H-5 | dead letters are replayed again and again | their headers do not grow
I1 | the driver is killed | a new session; nothing is lost
I2 | a job hangs | its timeout cancels it
I3 | gateway, context or memory are gone | nacked or retried
I4 | SIGTERM during a job | no orphaned Java process
I5 | a job fails for some records | the whole batch is nacked, or each bad record
J1 | the port is in use | fails at once and names it
J2 | slow scrapers | records continue
J3 | garbage on the HTTP port | 4xx
J4 | scrapes during a rebalance, with many labels | bounded
J5 | each setting is wrong | one report, and no connection is made
J6 | unusual secret files | as J5
J7 | wrong credentials, certificates, names | the cause is named, and no secret
J8 | rights are denied, and granted later | continues without a restart
J9 | sessions and tokens expire | connects again, nothing lost
J10 | quotas | slower; no member leaves the group
J11 | sinks of logs and metrics raise or block | records continue
S1 | each transport and mechanism, right and wrong | connects, or names the cause
S2 | old TLS versions, wrong host names, passwords in clear text | refused unless allowed
S3 | secrets in logs, errors, probes, dumps | nowhere
S4 | HTTP | bounded; without a token nothing can be changed
S5 | code in data | no pickle, no eval; depth and size are limited
S6 | forged headers of dead letters | not trusted, shortened, escaped
S7 | topics named by records | never written to
S8 | line breaks and labels from records | one log line for each event
S9 | the status page | no markup from data; hosts and origins are checked
S10 | destructive commands | ask first
S11 | files of states | nothing leaves the folder
S12 | import strings | taken from the configuration only
S13 | listening sockets | only those that are declared
S14 | installed packages | pinned, with hashes
S15 | defaults | compared with a snapshot
"""

ROWS = {
    row.id: row
    for line in _ROWS.strip().splitlines()
    for row in [Row(*map(str.strip, line.split("|")))]
}


def claims(folder: Path = TESTS) -> Iterator[Claim]:
    """Every row that the docstring of a test names, by file and line of the code."""
    for path in sorted(folder.rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
        for prefix, body in [("", module.body), *((f"{one.name}::", one.body) for one in classes)]:
            for node in body:
                if isinstance(
                    node, ast.FunctionDef | ast.AsyncFunctionDef
                ) and node.name.startswith("test_"):
                    for row in _claimed(ast.get_docstring(node) or ""):
                        yield Claim(row, f"tests/{path.relative_to(folder)}::{prefix}{node.name}")


def _claimed(docstring: str) -> list[str]:
    return [row for said in _CLAIM.finditer(docstring) for row in _ID.findall(said[1])]


def table() -> str:
    """The rows as Markdown, a list a section: the fault, and after the colon what must hold."""
    lines: list[str] = []
    for letter, title in SECTIONS.items():
        lines += ["", f"### {title}", ""]
        for row in ROWS.values():
            if row.id.startswith(letter):
                lines.append(f"- **{row.id}** {row.fault}: {row.holds}")
    return "\n".join([*lines[1:], ""])


def written(page: str) -> str:
    """The page with the lists of today."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n\n{table()}\n{end}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
