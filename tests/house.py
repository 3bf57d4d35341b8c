"""The structure of the code as numbers with goals: sizes, wiring, private reads, layers, comments, pages.

``python -m tests.house [ROOT ...]`` prints a table with a column for each tree, this one by default;
``--list MEASURE`` prints the places that a measure counts. The trees are read, not imported, so an old commit can be
measured next to the current one::

    git archive e589cd5 reactive_kafka docs | tar -x -C /tmp/before
    python -m tests.house . /tmp/before

``tests/test_house.py`` holds the goals.
"""

from __future__ import annotations

import argparse
import ast
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "reactive_kafka"
HERE = Path(__file__).parents[1]

LONGEST_FILE = 300
MOST_METHODS = 20
MOST_PARAMETERS = 8
WIDEST_LINE = 120

CLIENT_INTERNALS = ("broker/aiokafka", "spark/")
"""Files that read private names of aiokafka and of Spark, where those libraries offer no public ones."""
OURS_AFTER_ALL = ("spark/channel/",)
"""Files among those that have no business with the internals of a library."""
NAMED_TUPLE = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}

KEEPERS_OF_PARTITIONS = (
    "channel/",
    "checkpoint/",
    "commit/",
    "delivery/",
    "incoming/",
    "partitions/",
    "spark/channel/",
    "verdicts/",
)
STORES = ("checkpoint/memory.py", "checkpoint/stores/")
"""Implementations of checkpoint stores: their purpose is to hold a row for each partition."""
PARTITION_KEY = re.compile(r"\b(TopicPartition|Partition|\w*Tracker)\b")
MAPS = {"Counter", "MutableMapping", "Mapping", "OrderedDict", "defaultdict", "dict"}
SETS = {"frozenset", "set"}

BANNER = re.compile(r"#\s*(--|==|~~)")
FOR_TOOLS = re.compile(r"#\s*(noqa|type:|pragma|fmt:|ruff:|mypy:|!)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Found:
    """What a measure is in one tree, and the places that make it so."""

    value: float
    places: list[str]


@dataclass(frozen=True)
class Measure:
    """A number that can be held against a goal.

    Attributes:
        before: What it was at commit e589cd5, when the goals were set.
        goal: The value to reach; None: shown, not held.
        more_is_better: The goal is a least, not a most.
    """

    name: str
    title: str
    before: float
    goal: float | None
    find: Callable[[House], Found]
    more_is_better: bool = False

    def is_met(self, value: float) -> bool:
        """Whether the goal is reached."""
        return self.goal is None or not self.is_worse(value, self.goal)

    def is_worse(self, value: float, than: float) -> bool:
        """Whether *value* is further from the goal than another."""
        return value < than if self.more_is_better else value > than


class Source:
    """A file of the package; ``name`` is its path from the package's folder."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        text = path.read_text()
        self.lines = text.splitlines()
        self.tree = ast.parse(text, filename=str(path))

    @property
    def module(self) -> str:
        """The dotted name within the package; empty for the package itself."""
        parts = Path(self.name).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """All classes, including those inside functions and other classes."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    def comments(self) -> Iterator[str]:
        """Every comment with its place before it. A comment of three lines is three comments."""
        with self.path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT:
                    yield f"{self.name}:{token.start[0]} {token.string}"

    def place(self, node: ast.stmt | ast.expr, says: str) -> str:
        """A line of a list of places."""
        return f"{self.name}:{node.lineno} {says}"


class House:
    """A tree to measure: the package and the pages below *root*."""

    def __init__(self, root: Path = HERE) -> None:
        self.root = root
        package = root / PACKAGE
        self.sources = [Source(path, path.relative_to(package).as_posix()) for path in sorted(package.rglob("*.py"))]
        self.pages = sorted((root / "docs").rglob("*.md"))

    @property
    def size(self) -> int:
        """Lines of the package."""
        return sum(len(source.lines) for source in self.sources)


def _count(places: Iterable[str]) -> Found:
    found = list(places)
    return Found(len(found), found)


def _starts(name: str, prefixes: tuple[str, ...]) -> bool:
    return name.startswith(prefixes)


def long_files(house: House) -> Found:
    sizes = sorted(((len(source.lines), source.name) for source in house.sources), reverse=True)
    return _count(f"{name} {size}" for size, name in sizes if size > LONGEST_FILE)


def _methods(node: ast.ClassDef) -> list[Function]:
    return [inner for inner in node.body if isinstance(inner, Function)]


def large_classes(house: House) -> Found:
    return _count(
        source.place(node, f"{node.name} {len(_methods(node))}")
        for source in house.sources
        for node in source.classes
        if len(_methods(node)) > MOST_METHODS
    )


def wide_constructors(house: House) -> Found:
    def parameters(method: Function) -> int:
        return len([*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]) - 1

    return _count(
        source.place(method, f"{node.name} {parameters(method)}")
        for source in house.sources
        for node in source.classes
        for method in _methods(node)
        if method.name == "__init__" and parameters(method) > MOST_PARAMETERS
    )


def full_folders(house: House) -> Found:
    folders = Counter(str(Path(source.name).parent) for source in house.sources)
    return Found(max(folders.values()), [f"{name} {files}" for name, files in folders.most_common(10)])


def lines(house: House) -> Found:
    rooms: Counter[str] = Counter()
    for source in house.sources:
        rooms[_room(source.module)] += len(source.lines)
    return Found(house.size, [f"{room} {size}" for room, size in rooms.most_common()])


def protocols_alike(house: House) -> Found:
    """The largest group of protocols that share a name; 0 where each has its own."""
    named = defaultdict(list)
    for source in house.sources:
        for node in source.classes:
            if any(_last_name(base) == "Protocol" for base in node.bases):
                named[node.name].append(source.place(node, node.name))
    shared = sorted((places for places in named.values() if len(places) > 1), key=len, reverse=True)
    return Found(len(shared[0]) if shared else 0, [place for places in shared for place in places])


def _last_name(node: ast.expr) -> str:
    """``Protocol`` of ``typing.Protocol[T]``."""
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def foreign_private_reads(house: House) -> Found:
    """``other._name`` where *other* is neither ``self`` nor ``cls``, except in the files for clients' internals."""
    return _count(
        source.place(node, ast.unparse(node))
        for source in house.sources
        if _starts(source.name, OURS_AFTER_ALL) or not _starts(source.name, CLIENT_INTERNALS)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and re.match(r"_[a-z]", node.attr)
        and node.attr not in NAMED_TUPLE
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    )


def partition_maps(house: House) -> Found:
    """Attributes that are maps keyed by partition or tracker, or sets of them.

    An attribute counts where a method annotates it: ``self._known: set[TopicPartition] = set()``. Fields of
    dataclasses are values and do not count.
    """
    return _count(
        source.place(node, f"{node.target.attr}: {ast.unparse(node.annotation)}")
        for source in house.sources
        if _starts(source.name, KEEPERS_OF_PARTITIONS) and not _starts(source.name, STORES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and PARTITION_KEY.search(_key_of(node.annotation))
    )


def _key_of(annotation: ast.expr) -> str:
    """What an annotated map or set is keyed by, as text; empty for anything else."""
    if isinstance(annotation, ast.BinOp):  # X | None
        return f"{_key_of(annotation.left)} {_key_of(annotation.right)}"
    if not isinstance(annotation, ast.Subscript):
        return ""
    kind, inner = _last_name(annotation.value), annotation.slice
    if kind in SETS:
        return ast.unparse(inner)
    return ast.unparse(inner.elts[0] if isinstance(inner, ast.Tuple) else inner) if kind in MAPS else ""


def folder_cycles(house: House) -> Found:
    """Groups of rooms that import each other in a circle; imports under ``TYPE_CHECKING`` do not count."""
    cycles = sorted(_circles(_needs(house)), key=len, reverse=True)
    return Found(len(cycles), [f"{len(rooms)} rooms: {', '.join(sorted(rooms))}" for rooms in cycles])


def _room(module: str) -> str:
    """The top-level folder or module; empty for the package's own ``__init__``."""
    return module.partition(".")[0]


def _needs(house: House) -> dict[str, set[str]]:
    """Room -> the other rooms that it imports."""
    rooms = {_room(source.module) for source in house.sources} - {""}
    needs: dict[str, set[str]] = {room: set() for room in rooms}
    for source in house.sources:
        if by := _room(source.module):
            others = {_room(module.removeprefix(f"{PACKAGE}.")) for module in _imported(source.tree)}
            needs[by] |= others & rooms - {by}
    return needs


def _imported(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _last_name(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name.startswith(f"{PACKAGE}."))
        elif isinstance(child, ast.ImportFrom) and (child.module or "").partition(".")[0] == PACKAGE:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from _imported(child)


def _circles(needs: Mapping[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one room."""
    reached = {room: _reach(needs, room) for room in needs}
    circles: list[set[str]] = []
    for room, there in reached.items():
        circle = {other for other in there if room in reached[other]}
        if circle and circle not in circles:
            circles.append(circle)
    return circles


def _reach(needs: Mapping[str, set[str]], room: str) -> set[str]:
    """Where imports lead from a room; itself only if they lead back."""
    reached: set[str] = set()
    ahead = set(needs[room])
    while ahead:
        reached |= ahead
        ahead = {further for one in ahead for further in needs[one]} - reached
    return reached


def comments(house: House) -> Found:
    """Lines with a comment of any kind, per 100 lines of the package."""
    found = [comment for source in house.sources for comment in source.comments()]
    return Found(round(100 * len(found) / house.size, 2), found)


def reasons(house: House) -> Found:
    """Comments without section banners and without instructions to tools (``noqa``, ``type: ignore``)."""
    said = [
        comment
        for comment in comments(house).places
        if not (BANNER.match(comment, comment.index("#")) or FOR_TOOLS.match(comment, comment.index("#")))
    ]
    return Found(round(100 * len(said) / house.size, 2), said)


def wide_lines_of_docs(house: House) -> Found:
    """Lines of docs/ that are too wide, except rows of tables and URLs in code blocks."""
    return _count(
        f"{page.relative_to(house.root).as_posix()}:{number} {len(line)}"
        for page in house.pages
        for number, line, is_code in _lines_of(page)
        if len(line) > WIDEST_LINE and not line.lstrip().startswith("|") and not (is_code and "://" in line)
    )


def _lines_of(page: Path) -> Iterator[tuple[int, str, bool]]:
    """Number, text, and whether it stands in a code block."""
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        yield number, line, is_code


MEASURES = (
    Measure("files", f"files over {LONGEST_FILE} lines", 25, 10, long_files),
    Measure("classes", f"classes over {MOST_METHODS} methods", 17, 4, large_classes),
    Measure("constructors", f"constructors over {MOST_PARAMETERS} parameters", 9, 3, wide_constructors),
    Measure("protocols", "protocols that share one name", 12, 0, protocols_alike),
    Measure("private", "foreign private reads", 115, 20, foreign_private_reads),
    Measure("cycles", "cycles of folders", 1, 0, folder_cycles),
    Measure("folder", "most files in one folder", 38, 20, full_folders),
    Measure("maps", "maps and sets keyed by partition", 36, 3, partition_maps),
    # 34,000 for what there was when the house was rebuilt; sending (batches of our own, emitters, sources) came since,
    # CloudEvents, Quarkus' files, what describes a configuration and an application to other programs, and formats with
    # a schema registry, what keeps their data from ending the process or becoming the wrong type (250), and Spark's
    # part of them (350); routers and retries by exception (300), silent traps that are told, and why a broker cannot be
    # reached (350), the options of ``run`` for logs (65), what a handler says of its record there (185), and what the
    # tests of users have: virtual time by a marker, spies, a real Kafka (750). And what makes it fast: answers read in
    # place, fetches that say nothing new, keys without lanes of their own, batches of Spark made ahead (900), batches
    # whose messages are made when one is asked for (75), a quick look at what to fetch (60), JSON in one call (20),
    # no look for room that there cannot be (50). And virtual time that stands still for blocking handlers (40),
    # and a bound of what is held of many partitions (100).
    Measure("lines", "lines of the package", 38_065, 59_510, lines),
    Measure("comments", "comments per 100 lines", 2.09, None, comments, more_is_better=True),
    Measure("reasons", "comments without banners and noqa", 1.66, 2.1, reasons, more_is_better=True),
    Measure("docs", f"lines of docs/ over {WIDEST_LINE}", 582, 0, wide_lines_of_docs),
)


def table(columns: Mapping[str, House]) -> str:
    """Every measure as a line of text: before, in each tree, and the goal."""
    rows = [["", "", "e589cd5", *columns, "goal"]]
    for measure in MEASURES:
        values = [measure.find(house).value for house in columns.values()]
        goal = "more" if measure.goal is None else f"{measure.goal:,}"
        rows.append([measure.name, measure.title, f"{measure.before:,}", *(f"{value:,}" for value in values), goal])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if at < 2 else cell.rjust(width) for at, (cell, width) in enumerate(pairs)).rstrip()
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description="Measure the code against its goals.")
    parser.add_argument("roots", nargs="*", type=Path, metavar="ROOT", help="trees to measure (default: this one)")
    parser.add_argument("--list", choices=[measure.name for measure in MEASURES], help="print the places of a measure")
    arguments = parser.parse_args()
    houses = {str(root): House(root) for root in arguments.roots} or {"now": House()}
    if arguments.list is None:
        print(table(houses))
        return
    (measure,) = (measure for measure in MEASURES if measure.name == arguments.list)
    for house in houses.values():
        print(*measure.find(house).places, sep="\n")


if __name__ == "__main__":
    main()
