"""The rows of docs/faults.md: each fault, what must hold, and the tests that say so in their
docstrings.

A test claims rows with a line such as ``Row B4 of the faults.`` or ``Rows B1, B2 of the faults.``;
``python -m tests.faults.rows docs/faults.md`` writes the table anew.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
BEGIN, END = "<!-- faults -->", "<!-- /faults -->"
OUTAGES_BEGIN, OUTAGES_END = "<!-- outages -->", "<!-- /outages -->"
_CLAIM = re.compile(r"\bRows? ([A-Z0-9, and-]+) of the faults\b")
_ID = re.compile(r"[A-Z]-?\d+")


class Row(NamedTuple):
    """One fault. ``fault`` says what happens, ``holds`` what must hold beside the invariants."""

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
A1 | a partition's leader is killed | work goes on by itself, without a rebalance
A2 | the group's coordinator is killed | the next commit goes to the new one, nothing is read again
A3 | a leader is frozen for 2, 20, 90 s | no rebalance; its partitions go on with another leader
A4 | the nodes are restarted cleanly in turn | nothing repeated, no rebalance
A5 | the nodes are killed and started in turn | nothing lost
A6 | all brokers are away for a minute | alive, not ready, no spin, no flood of logs; goes on afterwards
A7 | the coordinator moves | the commit on its way is repeated in the same assignment only
A8 | fewer replicas in sync than needed | reading goes on; what needs a dead letter stays unsettled until it is written
A9 | an unclean election cuts the log off | a position beyond the end is noticed, counted, and decided by policy
A10 | the controllers have no quorum | reading goes on; questions end at their deadlines
A11 | each request answered with each error | what can pass is tried again; what cannot is told at once
A12 | older and newer brokers | the same tests are green
A13 | only commits are refused | the window fills, reading pauses, readiness says why; nothing is skipped
A14 | an outage lasts longer than every limit | alive, not ready with the reason; nothing is lost or poison; heals
B1 | cut, both ways, for 3, 15, 120 s | beyond the session the member stops, and nothing of its time is committed later
B2 | replies cut | an unanswered commit may or may not have been stored; nothing is skipped
B3 | requests cut | as B1
B4 | cut from the coordinator only | the member starts nothing after its session, though it can read
B5 | cut from one leader only | the partitions of the others are not disturbed; readiness names it
B6 | connections reset again and again; refused | nothing lost, commits get through; no spin
B7 | latency, up to more than the session | the member stays, or comes back
B8 | little bandwidth; a zero window | heartbeats are not starved
B9 | loss, half-open connections, flapping | noticed within the session
B10 | a host that has no name, an address where nobody listens | the others are used
C1 | members join and leave | graceful ones repeat nothing
C2 | twenty members come at once | commits go on
C3 | a member is killed in a batch | what is repeated is bounded
C4 | a session ends while handlers run | late acks are dropped; no commit of the old assignment is taken
C5 | a commit on its way during a rebalance | the assignment is looked at when it is sent; one at a time
C6 | an ack after the revocation | ignored, answered with False, counted
C7 | handlers slower than the grace | the rebalance goes on, the member stays
C8 | a standby is idle for long, then the owner dies | the standby takes over
C9 | one static name twice | noticed; one of them stops with a clear error
C10 | a foreign application in the group | a foreign protocol is fatal and explained; foreign topics are never committed
C11 | positions are reset or deleted under a running service | told; the next commit counts
C12 | a topic gets more partitions | new ones are read from their beginning
C13 | a new topic fits the pattern | as C12
C14 | nothing is committed | never `latest` without a word
D1 | SIGTERM, in every state | ends with 0 within its time
D2 | SIGINT, SIGHUP | as D1
D3 | the event loop is blocked for 1, 15 s | measured, and told with the calls that it stood in; recovers
D4 | a handler never returns | only its lane stands still; a stop still ends
D5 | odd exceptions | never an ack
D6 | a handler raises or swallows CancelledError | no ack; a timeout is told from a stop
D7 | a message is never settled | the poison watch tells of it; no silent ack
D8 | slow handlers, fast producers | memory is bounded
D9 | the memory limit kills the process | as C3
D10 | no descriptors are left | told, no spin; heals
D11 | a handler forks | the child neither commits nor beats
D12 | uvloop, debug mode, two members in one loop or two threads | the same results
D13 | a start or stop half-way | no task, socket or thread is left
D14 | the wall clock jumps | ages and intervals do not
D15 | the process pauses | as D3
E1 | verdicts twice, in any order | the first counts
E2 | verdicts from threads and other loops | in order, on the channel's loop
E3 | verdicts after the end | no error, no effect
E4 | acks in random order, the first missing | the position stays, the cost is flat, reading pauses
E5 | forged messages | refused
E6 | acks while a commit fails | nothing lost
E7 | a part of a batch is acked | only that moves
E8 | each failure strategy | as documented
F1 | gaps in the log, at its end too | positions move over them, the lag reaches 0
F2 | aborted transactions | never handled where only what is committed is read
F3 | a transaction that nobody ends | readers of what is committed wait, and readiness says so
F4 | retention passes the position | what was lost is counted exactly
F5 | records are deleted under a reader | as F4
F6 | a topic is deleted and recreated | noticed; nothing is skipped in silence
F7 | broken batches | other partitions go on; one error, no spin
F8 | bytes flipped on disk | as F7; the offset is named
F9 | a record of 100 MB | delivered or told
F10 | a decompression bomb | told, memory is bounded
F11 | no key, no value, empty ones | handled
F12 | odd headers | no crash
F13 | values that cannot be read | the failure strategy, with the raw bytes
F14 | odd timestamps | no crash
F15 | one offset delivered twice | handled once
F16 | one key or partition gets nearly everything | the others are not starved
F17 | the schema registry is away, slow, wrong, or refuses | records wait, not begun; not ready, with the reason
F18 | a schema that the registry lacks or refuses | once certain, the record cannot be decoded; later ones are asked for
G1 | a crash at each step of writing | the old state or the new one
G2 | the disk is full | no commit beyond it, not ready; heals
G3 | the disk is read-only, or broken | as G2
G4 | the store is stopped, killed, slow | reading waits; no commit ahead of it
G5 | states that are corrupt, foreign, too old or too new | refused, in words
G6 | two owners write | the late one is refused
G7 | state and position | together or not at all
H-1 | the topic of dead letters is missing or forbidden | the record stays unsettled; not ready
H-2 | a letter is too large | headers are cut, then it is told
H-3 | the broker of the letters is away | written when it is back
H-4 | a crash between letter and commit | at most a second letter, which can be recognised
H-5 | letters are replayed again and again | their headers do not grow
I1 | the driver is killed | another session; nothing lost
I2 | a job hangs | its timeout cancels it
I3 | gateway, context or memory are gone | nacked or tried again; the loop is free
I4 | SIGTERM in a job | no orphaned Java process
I5 | a job fails for a part | all of the batch, or record by record
J1 | the port is in use | fails at once and names it
J2 | slow scrapers | the data goes on
J3 | garbage on the HTTP port | 4xx
J4 | scrapes in a rebalance, with many labels | bounded
J5 | each setting wrong | one report, and nothing is connected
J6 | odd secret files | as J5
J7 | wrong credentials, certificates, names | the cause is named, no secret is
J8 | rights are denied, and granted later | told; goes on without a restart
J9 | sessions and tokens expire | connects again, nothing lost
J10 | quotas | slower; nobody leaves the group
J11 | sinks of logs and metrics raise or block | the data goes on
S1 | each transport and mechanism, right and wrong | connects, or names the cause
S2 | TLS versions, host names, passwords in the clear | refused unless allowed
S3 | secrets in logs, errors, probes, dumps | nowhere
S4 | HTTP | loopback by default, bounded, verbs that change nothing without a token
S5 | code in data | no pickle, no eval; depth and size are capped
S6 | forged headers of dead letters | not trusted, cut, escaped
S7 | topics named by records | never written to
S8 | line breaks and labels out of records | one line an event; series are capped
S9 | the page | no markup out of data, no scripts, hosts and origins are looked at
S10 | commands that destroy | ask first, refuse while the group is active
S11 | files of states | nothing leaves the folder; nobody else reads them
S12 | import strings | out of the configuration only
S13 | what listens | what was declared, nothing else
S14 | what is installed | pinned, with hashes
S15 | defaults | a snapshot of them
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
    """The rows as Markdown, a table a section."""
    shown: dict[str, list[str]] = {}
    for row, test in claims():
        shown.setdefault(row, []).append(f"`{test}`")
    lines: list[str] = []
    for letter, title in SECTIONS.items():
        lines += [
            "",
            f"### {title}",
            "",
            "| | fault | what must hold | shown by |",
            "|---|---|---|---|",
        ]
        for row in ROWS.values():
            if row.id.startswith(letter):
                tests = ", ".join(sorted(shown.get(row.id, ["-"])))
                lines.append(f"| {row.id} | {row.fault} | {row.holds} | {tests} |")
    return "\n".join([*lines[1:], ""])


def outages() -> str:
    """What a channel does, by what is away, as Markdown: which cells tests/app/test_outages.py
    plays.
    """
    from tests.app.test_outages import (
        AWAY,
        PLAYS,
        REGISTERED,
        SPARK,
        SPARK_AWAY,
        STORED,
        TO_ANOTHER_CLUSTER,
    )

    played: dict[str, Collection[str]] = {
        **dict.fromkeys(AWAY, PLAYS),
        "an outgoing cluster": TO_ANOTHER_CLUSTER,
        **{column: plays for column, (plays, _) in REGISTERED.items()},
        "the checkpoint store": STORED,
        **dict.fromkeys(SPARK_AWAY, SPARK),
    }
    lines = [
        "| what the channel does | " + " | ".join(played) + " |",
        "|---" * (len(played) + 1) + "|",
    ]
    for play in (*PLAYS, *STORED, *SPARK):
        cells = ["played" if play in plays else "-" for plays in played.values()]
        lines.append(f"| {play} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def written(page: str) -> str:
    """The page with the tables of today."""
    for (begins, ends), made in {
        (BEGIN, END): table,
        (OUTAGES_BEGIN, OUTAGES_END): outages,
    }.items():
        before, begin, rest = page.partition(begins)
        _, end, after = rest.partition(ends)
        page = f"{before}{begin}\n\n{made()}\n{end}{after}"
    return page


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
