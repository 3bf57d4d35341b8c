"""Reads TOML, YAML, JSON and properties files into layers, and secrets from files. Errors name file
and line.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reactive_kafka.config.layers import Layer, of_mapping
from reactive_kafka.config.scan import (
    MOST_DEPTH,
    Lines,
    hinted,
    json_lines,
    line_of,
    toml_lines,
    too_deep_in_json,
    too_deep_in_toml,
)
from reactive_kafka.config.yaml_text import parse_yaml
from reactive_kafka.errors import ConfigError

MAX_FILE_BYTES = 1_048_576
MAX_SECRET_BYTES = 65_536
FILE_VARIABLE = "REACTIVE_KAFKA_CONFIG"
PROPERTIES = ".properties"
YAML = (".yaml", ".yml")
_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)\Z")
_TWICE = r'a backslash begins an escape: write two of them, as in "C:\\Users"'
# More digits than Python converts.
_LONG_NUMBER = re.compile(r"[0-9][0-9_]{4299,}")


_TABLE_OF_QUARKUS = re.compile(
    r"""^(?:(["']?)(?:mp|quarkus|smallrye)(?:\.[^\n]*?)?\1|(["'])%[^\n]*?\2)[ \t]*:(?=\s|\Z)""",
    re.MULTILINE,
)
_TABLE_OF_OURS = re.compile(r"""^(["']?)(?:incoming|outgoing)\1[ \t]*:(?=\s|\Z)""", re.MULTILINE)
_LIKE_SERVERS = re.compile(r"[\w.-]+:\d+(,[\w.-]+:\d+)*")


def read_file(path: Path, environ: Mapping[str, str]) -> Layer:
    """The layer of a configuration file, as its suffix says; *environ* has the variables of
    ``.properties`` files.

    Raises:
        ConfigError: It is not there, or cannot be read as what it should be.
        MissingExtraError: It is YAML, and there is no PyYAML.
    """
    if is_of_quarkus(path):
        from reactive_kafka.config.microprofile.quarkus_files import read_quarkus

        return read_quarkus(path, environ)[0].layer
    data, lines = read_tables(path, "[kafka]", others=(PROPERTIES,))
    return of_mapping(str(path), data, lambda key_path: line_of(lines, key_path))


def is_of_quarkus(path: Path) -> bool:
    """Whether a file is Quarkus's: properties, or YAML with tables of Quarkus and none of our
    channels at the top.
    """
    suffix = path.suffix.lower()
    if suffix not in YAML:
        return suffix == PROPERTIES
    text = text_of(path)
    return _TABLE_OF_QUARKUS.search(text) is not None and _TABLE_OF_OURS.search(text) is None


def read_tables(
    path: Path, example: str, *, others: tuple[str, ...] = ()
) -> tuple[Mapping[str, Any], Lines]:
    """What a TOML, YAML or JSON file says, and the lines of its keys. *example* is a table that it
    could have.

    Raises as :func:`read_file`; *others* are the endings of files that are read elsewhere.
    """
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None and _LIKE_SERVERS.fullmatch(str(path)):
        tables = '{"kafka": {"bootstrap_servers": "' + str(path) + '"}}'
        raise ConfigError(
            f"{path}: expected a file or tables, and this looks like brokers: write App({tables})"
        )
    if parse is None:
        raise ConfigError(
            f"{path}: unknown kind of file; expected one that ends in {', '.join((*_PARSERS, *others))}"
        )
    data, lines = parse(str(path), text_of(path))
    twice = {".".join(key): at for key, at in lines.items() if at[1:] and parse is not _parse_toml}
    # The parsers of YAML and JSON would silently take the last; in TOML it is a list of tables.
    if twice:
        raise ConfigError(
            *(
                f"{path}, line {at[1]}: {key} stands in line {at[0]} too"
                for key, at in twice.items()
            )
        )
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{path}: expected tables such as {example} at the top, not {type(data).__name__}"
        )
    return data, lines


def text_of(path: Path) -> str:
    """The text of a file of at most ``MAX_FILE_BYTES``; a ConfigError for what is not there, or no
    text.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        ways = f"--config and ${FILE_VARIABLE} name another"
        raise ConfigError(f"{path.absolute()}: there is no such file; {ways}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None


def _parse_toml(source: str, text: str) -> tuple[Any, Lines]:
    text = text.replace("\r\n", "\n")
    _refuse_depth(source, too_deep_in_toml(text))
    try:
        return tomllib.loads(text), toml_lines(text)
    except tomllib.TOMLDecodeError as error:
        text = str(error)
        at = _PLACE.search(text)
        where, text = (
            (f", line {at[1]}", f"{text[: at.start()]} (column {at[2]})") if at else ("", text)
        )
        raise ConfigError(f"{source}{where}: not TOML: {hinted(text)}") from None
    except ValueError as error:
        raise _number_too_long(source, text, f"not TOML: {error}") from None


def _parse_json(source: str, text: str) -> tuple[Any, Lines]:
    _refuse_depth(source, too_deep_in_json(text))
    try:
        return json.loads(text), json_lines(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{source}, line {error.lineno}: not JSON: {hinted(error.msg, _TWICE)}"
        ) from None
    except ValueError as error:
        raise _number_too_long(source, text, f"not JSON: {error}") from None


def _number_too_long(source: str, text: str, what: str) -> ConfigError:
    # The parsers do not say where it stands.
    found = _LONG_NUMBER.search(text)
    line = text.count("\n", 0, found.start()) + 1 if found else 1
    return ConfigError(f"{source}, line {line}: {what}")


def _refuse_depth(source: str, line: int | None) -> None:
    if line is not None:
        raise ConfigError(
            f"{source}, line {line}: nested too deeply: at most {MOST_DEPTH} levels are read"
        )


_PARSERS = {".toml": _parse_toml, **dict.fromkeys(YAML, parse_yaml), ".json": _parse_json}


def unreadable(path: str, *, is_folder: bool = False) -> str | None:
    """Why a file (or folder) that a client will read cannot be read; None: it can."""
    file = Path(path)
    try:
        if is_folder:
            next(file.iterdir(), None)
        else:
            file.open("rb").close()
    except FileNotFoundError:
        return f"there is no such {'folder' if is_folder else 'file'}{_start_of(file)}"
    except (OSError, ValueError) as error:
        # ValueError: a null character in its name.
        return f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"
    return None


def _start_of(file: Path) -> str:
    return "" if file.is_absolute() else f" (a relative path starts at {Path.cwd()})"


def exposure_of(path: str) -> str | None:
    """Why a secret file is open to others than its owner; None if it is not, or cannot be looked
    at.

    A group may read what somebody else owns, so that root can give a file to a service. Source:
    libpq, "sslkey".
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
    return f"{who} may read or write it (its mode is {mode:04o}): chmod 600 {path!r}"


def read_secret(path: str) -> str:
    """The content of a file without its final line end; a ValueError shows no content."""
    file = Path(path)
    try:
        if not file.is_file():
            what = "expected a plain file" if file.exists() else "there is no such file"
            raise ValueError(what + _start_of(file))
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
