"""``run --reload``: an application that is being written."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.inside import cli_in
from tests.cli.process import COMMAND, Running, cli, running

SERVICE = """\
from reactive_kafka import App

app = App()


@app.on_start
async def tell() -> None:
    print("{version}", flush=True)


@app.incoming("orders")
async def order(value: str) -> None: ...
"""
CONFIG = """\
[kafka]
bootstrap_servers = "localhost:1"

[incoming.orders]
group_id = "orders"

[http]
port = 0
"""
RELOAD = (*COMMAND, "run", "service:app", "--reload")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "first")
    (tmp_path / "reactive-kafka.toml").write_text(CONFIG)
    return tmp_path


def write(folder: Path, version: str) -> None:
    (folder / "service.py").write_text(SERVICE.format(version=version))


def end(run: Running) -> None:
    run.process.send_signal(signal.SIGTERM)
    assert run.end().code == 0, run.said


def test_a_changed_module_and_a_changed_configuration_restart_the_application(
    folder: Path,
) -> None:
    with running(*RELOAD, cwd=folder) as run:
        run.wait_for(lambda: run.err.count(" started: ") == 1, "it has started")
        write(folder, "second")
        run.wait_for(lambda: "second" in run.out, "the changed module runs")
        run.wait_for(lambda: run.err.count(" started: ") == 2, "it has started again")
        assert "changed: service.py" in run.err
        assert "orders: stopped" in run.err, "the old one has drained"

        (folder / "reactive-kafka.toml").write_text(CONFIG.replace("localhost:1", "localhost:2"))
        run.wait_for(lambda: "brokers localhost:2" in run.err, "the changed configuration counts")
        end(run)


def test_a_mistake_is_shown_and_the_next_change_starts_the_application_again(folder: Path) -> None:
    with running(*RELOAD, cwd=folder) as run:
        run.wait_for(lambda: " started: " in run.err, "it has started")
        (folder / "service.py").write_text("def broken(:\n")
        run.wait_for(lambda: "it starts again at the next change" in run.err, "it waits")
        assert "SyntaxError" in run.err
        write(folder, "third")
        run.wait_for(lambda: "third" in run.out, "it runs again")
        end(run)


def test_a_signal_ends_it_while_it_waits_for_a_change(folder: Path) -> None:
    (folder / "service.py").write_text("def broken(:\n")
    with running(*RELOAD, cwd=folder) as run:
        run.wait_for(lambda: "it starts again at the next change" in run.err, "it waits")
        end(run)


def test_a_configuration_file_in_another_folder_is_watched(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("elsewhere") / "prod.conf.toml"
    file.write_text(CONFIG.replace("localhost:1", "localhost:3"))
    with running(*RELOAD, "--config", str(file), cwd=folder) as run:
        run.wait_for(lambda: "brokers localhost:3" in run.err, "it has started")
        file.write_text(CONFIG.replace("localhost:1", "localhost:4"))
        run.wait_for(lambda: "brokers localhost:4" in run.err, "the changed file counts")
        end(run)


@pytest.mark.parametrize(
    ("option", "named"),
    [(("--workers", "2"), "--workers"), (("--until-end",), "--until-end")],
)
def test_it_cannot_be_combined_with(folder: Path, option: tuple[str, ...], named: str) -> None:
    ended = cli_in(folder, "run", "service:app", "--reload", *option)
    assert ended.code == 2
    assert "--reload cannot be combined with" in ended.err
    assert named in ended.err


def test_without_its_package_it_names_the_extra(folder: Path) -> None:
    # Python loads this module at its start. It hides the package from whoever looks for it.
    (folder / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "find_spec = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: (\n"
        "    None if name == 'watchfiles' else find_spec(name, package)\n"
        ")\n"
    )
    paths = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
    ended = cli("run", "service:app", "--reload", cwd=folder, env={"PYTHONPATH": paths})
    assert ended.code == 2, ended.err
    assert "--reload needs an extra" in ended.err
