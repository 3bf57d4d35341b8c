"""docs/internals.md lists each private name of aiokafka that the package uses: those of its producer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.pages import ROOT, page

PACKAGE = ROOT / "reactive_kafka" / "broker" / "aiokafka"
PAGE = page("docs/internals.md")
OURS = {"_replace", "_asdict", "_prepare"}
"""Of named tuples, and of a class of our own that calls its base."""
CALLED_BY_THEM = {"_client_id", "_bootstrap_servers", "_wait_on_metadata", "_maybe_wait_metadata"}
OF_THE_PRODUCER = {
    "batch_packing.py",
    "kafka_producer.py",
    "kafka_transactional_producer.py",
    "pacing.py",
    "producer_client.py",
    "replaceable_client.py",
}
ROWS = re.findall(
    r"^\| (`_[^|]+`) \| [^|]+ \| [^|]+ \| `(tests/.+\.py)` \|$",
    PAGE.read_text().partition("\n## Private names of aiokafka\n")[2],
    re.MULTILINE,
)


def private_names() -> Iterator[tuple[str, str]]:
    """Module and name of each private attribute of an object that is not the module's own."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and re.match("_[a-z]", node.attr)
                and node.attr not in OURS
                and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            ):
                yield path.name, node.attr
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiokafka"):
                for alias in node.names:
                    if alias.name.startswith("_") and alias.name != "__version__":
                        yield path.name, alias.name


def test_the_page_lists_each_private_name_that_is_used_and_no_other() -> None:
    listed = {name for names, _ in ROWS for name in re.findall(r"`(\w+)`", names)}
    used = {name for _, name in private_names()}
    assert listed == used | CALLED_BY_THEM


def test_they_are_used_for_the_producer_only() -> None:
    assert {module for module, _ in private_names()} <= OF_THE_PRODUCER


def test_each_row_names_a_test_module() -> None:
    assert len(ROWS) == 9
    assert [test for _, test in ROWS if not (ROOT / test).is_file()] == []
