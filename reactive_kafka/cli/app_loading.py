"""Imports the App that a command line names as ``module:app``, and says briefly why it cannot."""

from __future__ import annotations

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
from reactive_kafka.near_names import near_names

_NOT_THE_USERS = ("<frozen", importlib.__file__, f"{Path(__file__).parents[1]}/")
"""How the file names begin of Python's import machinery, and of this package."""


def load_app(target: str, folder: Path) -> App:
    """Import the App that *target* names, such as ``shop.billing:service.app``.

    Its module is looked up in *folder* first.

    Raises:
        WrongUsage: The module or the attribute does not exist, is not an App, or fails on import.
    """
    name, _, attribute = target.partition(":")
    if name.endswith(".py"):
        right = ".".join(Path(name).with_suffix("").parts)
        raise click.UsageError(
            f"{target!r} names a file; name its module: {right}:{attribute or 'app'}"
        )
    if not name or not attribute:
        raise click.UsageError(
            f"{target!r}: expected module:attribute, as in {name or 'billing'}:{attribute or 'app'}"
        )
    module = load_module(name, folder)
    try:
        app = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        # A built-in module has no __file__; for a folder without __init__.py it is None.
        path = getattr(module, "__file__", None)
        where = f" ({path})" if path else ""
        raise WrongUsage(f"{name}{where} has no {attribute!r}{_apps_in(module)}") from None
    except Exception as error:
        # A property, or the module's own __getattr__, may raise anything.
        raise WrongUsage(f"{target} cannot be looked up: {_cause(error)}") from error
    if not isinstance(app, App):
        kind = type(app).__name__
        raise WrongUsage(f"{target} is not an App but of type {kind!r}{_apps_in(module)}")
    return app


def load_module(name: str, folder: Path) -> ModuleType:
    """Import the module *name*, looked up in *folder* first.

    Raises:
        WrongUsage: There is no such module, or it fails on import.
    """
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
            hint = _hint_for_missing(error.name, folder)
            raise WrongUsage(f"there is no module {error.name!r} in {here}{hint}") from error
        raise WrongUsage(f"{name} cannot be imported: {_cause(error)}") from error
    except Exception as error:
        # The user's module may raise anything. A short report with the place helps more than our
        # own traceback.
        raise WrongUsage(f"{name} cannot be imported: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """Return the error and the line of the user's code that raised it."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    users_frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NOT_THE_USERS)
    ]
    if not users_frames:
        return describe(error)
    last = users_frames[-1]
    return f"{describe(error)} ({last.filename}:{last.lineno})"


def _hint_for_missing(name: str, folder: Path) -> str:
    modules = sorted(path.stem for path in folder.glob("*.py"))
    close = near_names(name, modules)
    return f"; did you mean {close[0]!r}?" if close else "; --app-dir names another folder"


def _apps_in(module: ModuleType) -> str:
    """Return the end of an error: the names of the Apps that *module* has."""
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not names:
        return f"; there is no App in {module.__name__}"
    return f"; did you mean {' or '.join(f'{module.__name__}:{name}' for name in names)}?"
