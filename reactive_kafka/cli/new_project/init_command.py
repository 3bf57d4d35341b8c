"""``reactive-kafka init``: make a project that runs and tests itself."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from string import Template

import click

from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.new_project.project_names import ProjectNames, names_of

# File of the project, with the name of its module in it -> its template.
FILES = {
    "{module}.py": "service.py.template",
    "reactive-kafka.toml": "reactive-kafka.toml.template",
    "tests/test_{module}.py": "test_service.py.template",
    "pyproject.toml": "pyproject.toml.template",
    "README.md": "README.md.template",
    ".gitignore": "gitignore.template",
}


@click.command(name="init", short_help="Make a project that runs and tests itself.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Make a project in the new folder DIR.

    It has a handler with a typed payload, which sends its result to another topic, with retries and
    dead letters, a configuration, and tests that need no Kafka. The module has the name of the
    folder, in a spelling that Python can import.

    \b
    Examples:
      reactive-kafka init billing
      reactive-kafka init services/my-shop
    """
    if folder.exists() or folder.is_symlink():
        raise click.UsageError(f"{folder} exists already: choose a folder that does not")
    names = names_of(folder.name)
    if names is None:
        raise click.UsageError(
            f"{folder.name!r} cannot become the name of a Python module: choose a folder whose "
            "name has letters from a to z or digits"
        )
    try:
        written = _write(folder, names)
    except OSError as error:
        raise CommandFailed(f"cannot write {error.filename}: {error.strerror}") from error
    for file in written:
        click.echo(file)
    click.echo(
        f"\nNext:\n"
        f"  cd {folder}\n"
        f"  python -m pytest\n"
        f"  reactive-kafka check {names.module}:app\n"
        f"  reactive-kafka run {names.module}:app\n"
        "\nREADME.md there says how to get what these need.",
        err=True,
    )


def _write(folder: Path, names: ProjectNames) -> list[Path]:
    """Write all files. Returns their paths."""
    folder.mkdir(parents=True)
    templates = files("reactive_kafka.cli.new_project").joinpath("template")
    written = []
    for name, template in FILES.items():
        file = folder / name.format(module=names.module)
        file.parent.mkdir(exist_ok=True)
        text = Template(templates.joinpath(template).read_text("utf-8"))
        file.write_text(text.substitute(module=names.module, package=names.package), "utf-8")
        written.append(file)
    return written
