"""Loads the ``module:app`` that a command is given, and says briefly why it cannot be loaded."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from functools import reduce
from pathlib import Path
from types import ModuleType

import click

from reactive_kafka.app import App
from reactive_kafka.cli.errors import WrongUsage
from reactive_kafka.errors import ConfigError, MissingExtraError, describe


def load_app(target: str, folder: Path) -> App:
    """The App that *target* names (``shop.billing:service.app``); its module is looked for in *folder* first.

    WrongUsage: the module or the attribute is not there, is something else, or fails when it is imported.
    """
    name, _, attribute = target.partition(":")
    if name.endswith(".py"):
        right = ".".join(Path(name).with_suffix("").parts)
        raise click.UsageError(f"{target!r} names a file; name its module: {right}:{attribute or 'app'}")
    if not name or not attribute:
        raise click.UsageError(f"{target!r}: expected module:attribute, as in {name or 'billing'}:{attribute or 'app'}")
    module = load_module(name, folder)
    try:
        app = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        path = getattr(module, "__file__", None)  # built into Python: none; a folder without __init__.py: None
        where = f" ({path})" if path else ""
        raise WrongUsage(f"{name}{where} has no {attribute!r}{_apps_there(module)}") from None
    except Exception as error:  # of a property, or of the module's own __getattr__
        raise WrongUsage(f"{target} cannot be looked up: {_cause(error)}") from error
    if not isinstance(app, App):
        kind = type(app).__name__
        raise WrongUsage(f"{target} is not an App but of type {kind!r}{_apps_there(module)}")
    return app


def load_module(name: str, folder: Path) -> ModuleType:
    """The module, looked for in *folder* first; WrongUsage: it is not there, or fails when it is imported."""
    here = str(folder.resolve())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except (ConfigError, MissingExtraError):
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise WrongUsage(f"there is no module {error.name!r} in {here}{_meant(error.name, folder)}") from error
        raise WrongUsage(f"{name} cannot be imported: {_cause(error)}") from error
    except Exception as error:  # whatever the user's module does at its import: reported in short, with its place
        raise WrongUsage(f"{name} cannot be imported: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """The error, and the line of the user's code that it comes from."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    machinery = (__file__, importlib.__file__)
    names = ((frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__))
    frames = [f" ({name}:{line})" for name, line in names if not name.startswith("<frozen") and name not in machinery]
    return f"{describe(error)}{frames[-1] if frames else ''}"


def _meant(name: str, folder: Path) -> str:
    close = difflib.get_close_matches(name, sorted(path.stem for path in folder.glob("*.py")), 1)
    return f"; did you mean {close[0]!r}?" if close else "; --app-dir names another folder"


def _apps_there(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not names:
        return f"; there is no App in {module.__name__}"
    return f"; did you mean {' or '.join(f'{module.__name__}:{name}' for name in names)}?"
