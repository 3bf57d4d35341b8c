"""Reads TOML, YAML and JSON files into layers, and secrets from files. Errors name the file and the line.

On which lines the keys of a file stand is scanned from its text. A real parser has read it before, so the scanners need
not find mistakes. They do not look into TOML's inline tables, nor into lists: the key that holds those has the line.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reactive_kafka.config.layers import KeyPath, Layer, of_mapping
from reactive_kafka.errors import ConfigError, MissingExtraError

MAX_SECRET_BYTES = 65_536
FILE_VARIABLE = "REACTIVE_KAFKA_CONFIG"

Lines = dict[KeyPath, list[int]]
"""Key path -> line numbers; a key written twice has two."""

_TOML_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|[A-Za-z0-9_-]+|[^\S\n]+|.''',
    re.DOTALL,
)
_TOML_NAME = re.compile(r"""["'A-Za-z0-9_-]""")
_JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|.', re.DOTALL)


def read_file(path: Path) -> Layer:
    """The layer of a configuration file, as its suffix says; a ConfigError, or MissingExtraError without PyYAML."""
    parse = _PARSERS.get(path.suffix.lower())
    if path.suffix.lower() == ".properties":
        raise ConfigError(f"{path}: application.properties files are not supported yet; write TOML, YAML or JSON")
    if parse is None:
        raise ConfigError(f"{path}: unknown kind of file; expected one that ends in {', '.join(_PARSERS)}")
    try:
        data, lines = parse(str(path), path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        ways = f"--config and ${FILE_VARIABLE} name another"
        raise ConfigError(f"{path.absolute()}: there is no such file; {ways}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    twice = {".".join(key): at for key, at in lines.items() if at[1:] and parse is not _parse_toml}
    if twice:  # the parsers of YAML and JSON would silently take the last; in TOML it is a list of tables
        raise ConfigError(*(f"{path}, line {at[1]}: {key} stands in line {at[0]} too" for key, at in twice.items()))
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: expected tables such as [kafka] at the top, not {type(data).__name__}")
    return of_mapping(str(path), data, lambda key_path: line_of(lines, key_path))


def _parse_toml(source: str, text: str) -> tuple[Any, Lines]:
    text = text.replace("\r\n", "\n")
    try:
        return tomllib.loads(text), toml_lines(text)
    except ValueError as error:  # TOMLDecodeError, or a number too long
        raise ConfigError(f"{source}: not TOML: {error}") from None


def _parse_json(source: str, text: str) -> tuple[Any, Lines]:
    try:
        return json.loads(text), json_lines(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}, line {error.lineno}: not JSON: {error.msg}") from None
    except ValueError as error:  # a number too long
        raise ConfigError(f"{source}: not JSON: {error}") from None


def _parse_yaml(source: str, text: str) -> tuple[Any, Lines]:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(f"the YAML file {source}", "yaml") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return {} if root is None else yaml.safe_load(text), yaml_lines(root)
    except yaml.MarkedYAMLError as error:
        # The error's own text quotes the line, which may hold a secret.
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {type(error).__name__}") from None


_PARSERS = {".toml": _parse_toml, ".yaml": _parse_yaml, ".yml": _parse_yaml, ".json": _parse_json}


def line_of(lines: Lines, path: KeyPath) -> int | None:
    """The line of *path*, or of the nearest table around it that stands in the file."""
    for length in range(len(path), 0, -1):
        if found := lines.get(path[:length]):
            return found[0]
    return None


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, int]]:
    """Each token and the line that it begins on."""
    line = 1
    for match in pattern.finditer(text):
        yield match[0], line
        line += match[0].count("\n")


def toml_lines(text: str) -> Lines:
    """The lines of the tables and keys of a TOML file."""
    lines: Lines = {}
    table: KeyPath = ()
    for statement in _toml_statements(text):
        is_header = statement[0][0] == "["
        key = tuple(_toml_name(token) for token, _ in statement if _TOML_NAME.match(token))
        lines.setdefault(key if is_header else table + key, []).append(statement[0][1])
        table = key if is_header else table
    return lines


def _toml_statements(text: str) -> Iterator[list[tuple[str, int]]]:
    """The tokens of each header, and of each key up to its ``=``."""
    statement: list[tuple[str, int]] = []
    in_value, depth = False, 0
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
    """The lines of the keys of a JSON file."""
    lines: Lines = {}
    tokens = _tokens(_JSON_TOKEN, text)

    def walk(path: KeyPath | None, is_object: bool) -> None:
        """Note the keys up to the end of a container; *path* is None inside of lists."""
        key, wants_key = "", is_object
        for token, line in tokens:
            if token in "}]":
                return
            if token in "{[":
                walk((*path, key) if is_object and path is not None else None, token == "{")
            elif token == ",":
                wants_key = is_object
            elif wants_key and token[0] == '"':
                key, wants_key = json.loads(token), False
                if path is not None:
                    lines.setdefault((*path, key), []).append(line)

    for token, _ in tokens:
        if token in "{[":
            walk((), token == "{")
    return lines


def yaml_lines(root: Any) -> Lines:
    """The lines of the keys in the node tree that PyYAML composes."""
    lines: Lines = {}

    def walk(node: Any, path: KeyPath, around: tuple[int, ...]) -> None:
        if node is None or node.id != "mapping" or id(node) in around:  # an alias may point to what holds it
            return
        for key, value in node.value:
            if key.id == "scalar":
                lines.setdefault((*path, key.value), []).append(key.start_mark.line + 1)
                walk(value, (*path, key.value), (*around, id(node)))

    walk(root, (), ())
    return lines


def exposure_of(path: str) -> str | None:
    """Why a secret file is open to others than its owner; None if it is not, or cannot be looked at.

    A group may read what somebody else owns, so that root can give a file to a service. Source: libpq, "sslkey".
    """
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        who = "everybody on this machine"
    elif mode & (stat.S_IRGRP | stat.S_IWGRP) and status.st_uid == os.geteuid():
        who = "its group"
    else:
        return None
    return f"{who} may read or write it (its mode is {mode:04o}): chmod 600"


def read_secret(path: str) -> str:
    """The content of a file without its final line end; a ValueError shows no content."""
    file = Path(path)
    try:
        if not file.is_file():
            start = "" if file.is_absolute() else f" (a relative path starts at {Path.cwd()})"
            raise ValueError(("expected a plain file" if file.exists() else "there is no such file") + start)
        with file.open("rb") as stream:
            content = stream.read(MAX_SECRET_BYTES + 1)
        text = content.decode("utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8") from None
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"the file is larger than {MAX_SECRET_BYTES} bytes")
    if not text:
        raise ValueError("the file is empty")
    return text
