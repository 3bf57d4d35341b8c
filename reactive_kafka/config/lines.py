"""On which line of a file each key stands. Pure: text in, key path -> line numbers out.

The text has been read by a real parser before, so the scanners here need not find mistakes. Keys inside TOML's
inline tables, and inside lists, are not listed: :func:`line_of` answers with the line of what holds them.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

Path = tuple[str, ...]
Lines = dict[Path, list[int]]

_TOML_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|[A-Za-z0-9_-]+|[^\S\n]+|.''',
    re.DOTALL,
)
_JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|.', re.DOTALL)


def line_of(lines: Mapping[Path, list[int]], path: Path) -> int | None:
    """The line of *path*, or of the nearest table around it that stands in the file."""
    for length in range(len(path), 0, -1):
        if found := lines.get(path[:length]):
            return found[0]
    return None


def toml_lines(text: str) -> Lines:
    """Key path -> lines, of tables and keys."""
    lines: Lines = {}
    table: Path = ()
    key: list[str] = []
    mode, depth, line = "key", 0, 1
    for match in _TOML_TOKEN.finditer(text + "\n"):
        token = match[0]
        if token == "\n" and depth == 0:  # the end of a statement
            if mode == "header":
                table = tuple(key)
                lines.setdefault(table, []).append(line)
            key, mode = [], "key"
        elif mode == "value":
            depth += (token in "[{") - (token in "]}")
        elif token == "[":
            mode = "header"
        elif token == "=":
            lines.setdefault(table + tuple(key), []).append(line)
            mode = "value"
        elif token[0] in "\"'":
            key.append(tomllib.loads("key = " + token)["key"])
        elif re.match(r"[A-Za-z0-9_-]", token):
            key.append(token)
        line += token.count("\n")
    return lines


def json_lines(text: str) -> Lines:
    """Key path -> lines; a key that stands twice has two."""
    lines: Lines = {}
    around: list[
        tuple[Path | None, bool]
    ] = []  # of each open container: its path (None inside a list), is it an object
    key, line, wants_key = "", 1, False
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        path, is_object = around[-1] if around else ((), False)
        if token in "{[":
            inner = None if path is None or (around and not is_object) else (*path, key) if around else ()
            around.append((inner, token == "{"))
            wants_key = token == "{"
        elif token in "}]":
            around.pop()
        elif token == ",":
            wants_key = is_object
        elif token[0] == '"' and wants_key:
            key, wants_key = json.loads(token), False
            if path is not None:
                lines.setdefault((*path, key), []).append(line)
        line += token.count("\n")
    return lines


def yaml_lines(root: Any) -> Lines:
    """Key path -> lines, from the node tree that PyYAML composes; a key that stands twice has two."""
    lines: Lines = {}

    def walk(node: Any, path: Path, around: tuple[int, ...]) -> None:
        if node is None or node.id != "mapping" or id(node) in around:  # an alias may point to what holds it
            return
        for key, value in node.value:
            if key.id == "scalar":
                lines.setdefault((*path, key.value), []).append(key.start_mark.line + 1)
                walk(value, (*path, key.value), (*around, id(node)))

    walk(root, (), ())
    return lines
