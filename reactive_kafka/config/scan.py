"""Scans the text of a TOML or JSON file: the lines of its keys, and how deeply it is nested. Pure.

The depth is scanned before a parser sees the text: parsers recurse, and a key of 20,000 dotted
parts costs tomllib gigabytes. The lines are scanned after a real parser has accepted the text, so
the scanners need not find mistakes. They do not look into TOML's inline tables, nor into lists;
these have the line of their key.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator

KeyPath = tuple[str, ...]
Lines = dict[KeyPath, list[int]]
"""Key path -> line numbers; a key written twice has two."""

MOST_DEPTH = 64
"""The most tables and lists inside each other, and the most parts of a dotted key.

The configuration itself needs fewer than ten.
"""

# A string that is not closed ends at the end of the line or the text. No parser has read the text
# yet, and a pattern that starts again at each quotation mark would take a minute for 60 KB of them.
_TOML_TOKEN = re.compile(
    r'''"""(?:\\.?|[^\\])*?(?:"{3,5}|\Z)|\'\'\'.*?(?:\'{3,5}|\Z)'''
    r"""|"(?:\\.?|[^"\\\n])*(?:"|(?=\n)|\Z)"""
    r"""|\'[^\'\n]*(?:\'|(?=\n)|\Z)|\#[^\n]*|[A-Za-z0-9_-]+|[^\S\n]+|.""",
    re.DOTALL,
)
_TOML_NAME = re.compile(r"""["'A-Za-z0-9_-]""")
_ABOUT_ESCAPES = re.compile("escape|invalid hex value", re.IGNORECASE)
IN_SINGLE_QUOTES = (
    r"in double quotes a backslash begins an escape: use single quotes, as in 'C:\Users'"
)
_JSON_TOKEN = re.compile(r'"(?:\\.?|[^"\\])*(?:"|\Z)|.', re.DOTALL)


def hinted(problem: str, hint: str = IN_SINGLE_QUOTES) -> str:
    """Return what a parser says, with the *hint* if it stumbled over a backslash."""
    return f"{problem}: {hint}" if _ABOUT_ESCAPES.search(problem) else problem


def too_deep_in_toml(text: str) -> int | None:
    """Return the line on which a TOML text goes deeper than ``MOST_DEPTH``; None if none does."""
    depth = 0
    dots = 0
    for token, line in _tokens(_TOML_TOKEN, text):
        depth += (token in "[{") - (token in "]}")
        if token == ".":
            dots += 1
        elif not _TOML_NAME.match(token) and (not token.isspace() or token == "\n"):
            # Neither a part of a dotted key nor a blank between parts: the key has ended.
            dots = 0
        if max(depth, dots) > MOST_DEPTH:
            return line
    return None


def too_deep_in_json(text: str) -> int | None:
    """Return the line on which a JSON text goes deeper than ``MOST_DEPTH``; None if none does."""
    depth = 0
    for token, line in _tokens(_JSON_TOKEN, text):
        depth += (token in "[{") - (token in "]}")
        if depth > MOST_DEPTH:
            return line
    return None


def line_of(lines: Lines, path: KeyPath) -> int | None:
    """Return the line of *path*, or of the nearest table around it that the file has."""
    for length in range(len(path), 0, -1):
        found = lines.get(path[:length])
        if found:
            return found[0]
    return None


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, int]]:
    """Yield each token with the line that it begins on."""
    line = 1
    for match in pattern.finditer(text):
        yield match[0], line
        line += match[0].count("\n")


def toml_lines(text: str) -> Lines:
    """Return the lines of the tables and keys of a TOML file."""
    lines: Lines = {}
    table: KeyPath = ()
    for statement in _toml_statements(text):
        is_header = statement[0][0] == "["
        key = tuple(_toml_name(token) for token, _ in statement if _TOML_NAME.match(token))
        lines.setdefault(key if is_header else table + key, []).append(statement[0][1])
        table = key if is_header else table
    return lines


def _toml_statements(text: str) -> Iterator[list[tuple[str, int]]]:
    """Yield the tokens of each header, and of each key up to its ``=``."""
    statement: list[tuple[str, int]] = []
    in_value = False
    depth = 0
    for token, line in _tokens(_TOML_TOKEN, text + "\n"):
        if in_value:
            depth += (token in "[{") - (token in "]}")
            in_value = depth > 0 or token != "\n"
            continue
        if token in ("=", "\n"):
            in_value = token == "="
            if statement:
                yield statement
            statement = []
        elif not token.isspace() and token[0] != "#":
            statement.append((token, line))


def _toml_name(token: str) -> str:
    return str(tomllib.loads(f"name = {token}")["name"]) if token[0] in "\"'" else token


def json_lines(text: str) -> Lines:
    """Return the lines of the keys of a JSON file."""
    lines: Lines = {}
    tokens = _tokens(_JSON_TOKEN, text)

    def walk(path: KeyPath | None, is_object: bool) -> None:
        """Note the keys up to the end of a container; *path* is None inside of lists."""
        key = ""
        wants_key = is_object
        for token, line in tokens:
            if token in "}]":
                return
            if token in "{[":
                walk((*path, key) if is_object and path is not None else None, token == "{")
            elif token == ",":
                wants_key = is_object
            elif wants_key and token[0] == '"':
                key = json.loads(token)
                wants_key = False
                if path is not None:
                    lines.setdefault((*path, key), []).append(line)

    for token, _ in tokens:
        if token in "{[":
            walk((), token == "{")
    return lines
