"""Reads TOML, YAML and JSON files into layers, and secrets from files. Errors name the file and the line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reactive_kafka.config import lines as locate
from reactive_kafka.config.layers import Layer, of_mapping
from reactive_kafka.errors import ConfigError, MissingExtraError

MAX_SECRET_BYTES = 65_536
FILE_VARIABLE = "REACTIVE_KAFKA_CONFIG"

Parsed = tuple[Any, locate.Lines]


def read_file(path: Path) -> Layer:
    """The layer of a configuration file. Its suffix says what it is.

    Raises:
        ConfigError: It does not exist, cannot be read, or is not what its suffix says.
        MissingExtraError: YAML without PyYAML.
    """
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
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: expected tables such as [kafka] at the top, not {type(data).__name__}")
    return of_mapping(str(path), data, lambda key_path: locate.line_of(lines, key_path))


def _parse_toml(source: str, text: str) -> Parsed:
    text = text.replace("\r\n", "\n")
    try:
        return tomllib.loads(text), locate.toml_lines(text)
    except ValueError as error:  # TOMLDecodeError, or a number too long
        raise ConfigError(f"{source}: not TOML: {error}") from None


def _parse_json(source: str, text: str) -> Parsed:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}, line {error.lineno}: not JSON: {error.msg}") from None
    except ValueError as error:  # a number too long
        raise ConfigError(f"{source}: not JSON: {error}") from None
    return data, _once(source, locate.json_lines(text))


def _parse_yaml(source: str, text: str) -> Parsed:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(f"the YAML file {source}", "yaml") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = {} if root is None else yaml.safe_load(text)
        return data, _once(source, locate.yaml_lines(root))
    except yaml.MarkedYAMLError as error:
        # The error's own text quotes the line, which may hold a secret.
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {type(error).__name__}") from None


def _once(source: str, lines: locate.Lines) -> locate.Lines:
    """The same lines. A key that stands twice is an error; the parsers would silently take the last."""
    twice = [
        f"{source}, line {at[1]}: {'.'.join(path)} stands in line {at[0]} too" for path, at in lines.items() if at[1:]
    ]
    if twice:
        raise ConfigError(*twice)
    return lines


_PARSERS: dict[str, Callable[[str, str], Parsed]] = {
    ".toml": _parse_toml,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".json": _parse_json,
}


def read_secret(path: str) -> str:
    """The content of a file without its final line end. No error shows the path or the content.

    Raises:
        ValueError: It is not a file, not readable, empty, too large, or not UTF-8.
    """
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
