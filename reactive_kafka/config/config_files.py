"""Reads configuration files (TOML, YAML, JSON, properties) into layers, and secrets from files.

Errors name the file and the line.
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
_TWO_BACKSLASHES = r'a backslash begins an escape: write two of them, as in "C:\\Users"'
# Python converts numbers of at most 4300 digits.
_LONG_NUMBER = re.compile(r"[0-9][0-9_]{4299,}")
_TABLE_OF_QUARKUS = re.compile(
    r"""^(?:(["']?)(?:mp|quarkus|smallrye)(?:\.[^\n]*?)?\1|(["'])%[^\n]*?\2)[ \t]*:(?=\s|\Z)""",
    re.MULTILINE,
)
_TABLE_OF_OURS = re.compile(r"""^(["']?)(?:incoming|outgoing)\1[ \t]*:(?=\s|\Z)""", re.MULTILINE)
_LIKE_SERVERS = re.compile(r"[\w.-]+:\d+(,[\w.-]+:\d+)*")


def read_file(path: Path, environ: Mapping[str, str]) -> Layer:
    """Return the layer of a configuration file. Its suffix decides how it is read.

    Args:
        path: The file.
        environ: The environment; ``.properties`` files refer to it.

    Raises:
        ConfigError: The file does not exist, or cannot be read as its suffix says.
        MissingExtraError: It is YAML, and PyYAML is not installed.
    """
    if is_of_quarkus(path):
        from reactive_kafka.config.microprofile.quarkus_files import read_quarkus

        return read_quarkus(path, environ)[0].layer
    data, lines = read_tables(path, "[kafka]", others=(PROPERTIES,))
    return of_mapping(str(path), data, lambda key_path: line_of(lines, key_path))


def is_of_quarkus(path: Path) -> bool:
    """Return whether a file belongs to Quarkus.

    That is a properties file, or YAML with tables of Quarkus and without our channels at the top.
    """
    suffix = path.suffix.lower()
    if suffix not in YAML:
        return suffix == PROPERTIES
    text = text_of(path)
    return _TABLE_OF_QUARKUS.search(text) is not None and _TABLE_OF_OURS.search(text) is None


def read_tables(
    path: Path, example: str, *, others: tuple[str, ...] = ()
) -> tuple[Mapping[str, Any], Lines]:
    """Return what a TOML, YAML or JSON file says, and the lines of its keys.

    Args:
        path: The file.
        example: A table that it could have, for errors.
        others: Endings of files that are read elsewhere, for errors.

    Raises:
        ConfigError: See :func:`read_file`.
        MissingExtraError: See :func:`read_file`.
    """
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None and _LIKE_SERVERS.fullmatch(str(path)):
        tables = '{"kafka": {"bootstrap_servers": "' + str(path) + '"}}'
        raise ConfigError(
            f"{path}: expected a file or tables, and this looks like brokers: write App({tables})"
        )
    if parse is None:
        raise ConfigError(
            f"{path}: unknown kind of file; expected one that ends in "
            f"{', '.join((*_PARSERS, *others))}"
        )
    data, lines = parse(str(path), text_of(path))
    if parse is not _parse_toml:
        # The parsers of YAML and JSON silently take the last of two equal keys. In TOML two equal
        # headers are a list of tables.
        twice = {".".join(key): numbers for key, numbers in lines.items() if len(numbers) > 1}
        if twice:
            raise ConfigError(
                *(
                    f"{path}, line {numbers[1]}: {key} is in line {numbers[0]}, too"
                    for key, numbers in twice.items()
                )
            )
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{path}: expected tables such as {example} at the top, not {type(data).__name__}"
        )
    return data, lines


def text_of(path: Path) -> str:
    """Return the text of a file of at most ``MAX_FILE_BYTES``.

    Raises:
        ConfigError: The file does not exist, is too large, or is not UTF-8.
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
        problem = str(error)
        line = ""
        place = _PLACE.search(problem)
        if place is not None:
            line = f", line {place[1]}"
            problem = f"{problem[: place.start()]} (column {place[2]})"
        raise ConfigError(f"{source}{line}: not TOML: {hinted(problem)}") from None
    except ValueError as error:
        raise _number_too_long(source, text, f"not TOML: {error}") from None


def _parse_json(source: str, text: str) -> tuple[Any, Lines]:
    _refuse_depth(source, too_deep_in_json(text))
    try:
        return json.loads(text), json_lines(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{source}, line {error.lineno}: not JSON: {hinted(error.msg, _TWO_BACKSLASHES)}"
        ) from None
    except ValueError as error:
        raise _number_too_long(source, text, f"not JSON: {error}") from None


def _number_too_long(source: str, text: str, what: str) -> ConfigError:
    # The parsers do not say where the number is.
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
    """Return why a file or folder cannot be read; None if it can."""
    file = Path(path)
    try:
        if is_folder:
            next(file.iterdir(), None)
        else:
            file.open("rb").close()
    except FileNotFoundError:
        return f"there is no such {'folder' if is_folder else 'file'}{_start_of(file)}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError as error:
        # Its name has a null character.
        return f"cannot be read: {error}"
    return None


def _start_of(file: Path) -> str:
    """Return the end of an error: the folder that a relative path starts at."""
    return "" if file.is_absolute() else f" (a relative path starts at {Path.cwd()})"


def exposure_of(path: str) -> str | None:
    """Return why a secret file is open to other users; None if it is not, or cannot be looked at.

    A group may read a file of another owner, so that root can give a file to a service.
    Source: libpq, "sslkey".
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
    """Return the content of a file without its final line end.

    Raises:
        ValueError: The file cannot be read, or is empty. The text shows nothing of the content.
    """
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
