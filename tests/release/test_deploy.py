"""The files that deploy a service are valid, and agree with the defaults of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from reactive_kafka import App
from reactive_kafka.broker.jars import KAFKA_VERSION
from reactive_kafka.cli.commands import commands
from reactive_kafka.config import keys
from reactive_kafka.runtime.signals import CLOSING_S
from tests.release.pythons import TOOLS, run

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
UNIT = ROOT / "deploy/systemd/reactive-kafka.service"
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
DRAIN_S: float = keys.INCOMING.keys["drain_timeout"].parsed_default
PORT: int = keys.HTTP.keys["port"].parsed_default
GRACE_S = DRAIN_S + CLOSING_S
"""How long a stop takes at most, with the defaults."""
IN_DOCKER = "REACTIVE_KAFKA_DOCKER"


def manifest(name: str) -> Any:
    return yaml.safe_load((ROOT / "deploy/kubernetes" / f"{name}.yaml").read_text())


def container() -> Any:
    (found,) = manifest("deployment")["spec"]["template"]["spec"]["containers"]
    return found


class TestEachFileIsValid:
    def test_the_dockerfile(self) -> None:
        run(TOOLS / "hadolint", "--failure-threshold", "style", DOCKERFILE, cwd=ROOT)

    def test_compose(self) -> None:
        check = (TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec")
        run(*check, "compose.yaml", cwd=ROOT)

    @pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
    def test_a_manifest(self, file: Path) -> None:
        if file.name == "kustomization.yaml":
            listed = yaml.safe_load(file.read_text())["resources"]
            assert listed == [other.name for other in MANIFESTS if other != file]
        else:
            said = run(TOOLS / "kubernetes-validate", "--strict", file, cwd=ROOT)
            assert "passed" in said

    @pytest.mark.skipif(
        shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here"
    )
    def test_the_unit(self, tmp_path: Path) -> None:
        # The program has to exist for systemd-analyze, which says nothing more about this copy.
        unit = tmp_path / UNIT.name
        unit.write_text(re.sub(r"(?<=^ExecStart=)\S+", "/bin/true", UNIT.read_text(), flags=re.M))
        done = subprocess.run(
            ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60
        )
        about_it = [line for line in done.stderr.splitlines() if unit.name in line]
        assert (about_it, done.returncode) == ([], 0)

    def test_the_workflows(self) -> None:
        check = (TOOLS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows")
        run(*check, *WORKFLOWS, cwd=ROOT)
        run(TOOLS / "zizmor", "--offline", "--no-progress", *WORKFLOWS, cwd=ROOT)

    def test_every_action_is_pinned_to_a_commit(self) -> None:
        uses = re.findall(r"uses: (\S+)", "".join(file.read_text() for file in WORKFLOWS))
        assert uses
        assert [one for one in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)] == []

    def test_workflows_call_commands_that_exist(self) -> None:
        makefile = (ROOT / "Makefile").read_text()
        called = re.findall(r"run: make (.+)", "".join(file.read_text() for file in WORKFLOWS))
        for target in " ".join(called).split():
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


class TestTheyAgreeWithTheDefaults:
    def test_a_pod_has_time_to_drain(self) -> None:
        pod = manifest("deployment")["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > GRACE_S

    def test_a_unit_has_time_to_drain(self) -> None:
        (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
        assert int(seconds) > GRACE_S

    def test_a_container_of_compose_has_time_to_drain(self) -> None:
        (seconds,) = re.findall(r"^(\d+)s$", COMPOSE["services"]["hello"]["stop_grace_period"])
        assert int(seconds) > GRACE_S

    def test_probes_ask_for_paths_that_the_server_has(self) -> None:
        probes = {
            container()[f"{kind}Probe"]["httpGet"]["path"]
            for kind in ("startup", "liveness", "readiness")
        }
        assert probes == {"/health/started", "/health/live", "/health/ready"}
        monitor = manifest("optional/servicemonitor")["spec"]["endpoints"][0]
        assert monitor["path"] == "/metrics"
        (asked,) = re.findall(rf"http://127.0.0.1:{PORT}([\w/]+)", DOCKERFILE.read_text())
        assert asked == "/health/live"

    def test_ports_are_the_default(self) -> None:
        assert [port["containerPort"] for port in container()["ports"]] == [PORT]
        assert [port["port"] for port in manifest("service")["spec"]["ports"]] == [PORT]
        assert f"EXPOSE {PORT}\n" in DOCKERFILE.read_text()
        assert COMPOSE["services"]["hello"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
        scraped = yaml.safe_load((ROOT / "deploy/compose/prometheus.yml").read_text())
        targets = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
        assert targets == [f"hello:{PORT}"]

    def test_the_configuration_of_a_pod_is_valid_and_is_what_the_other_files_say(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "reactive-kafka.toml"
        file.write_text(manifest("configmap")["data"][file.name])
        settings = App(file).configure()
        assert (settings.http.host, settings.http.port) == ("0.0.0.0", PORT)
        channel = settings.incoming["greetings"]
        assert channel.drain_timeout_s == DRAIN_S
        scaled = manifest("optional/scaledobject")["spec"]["triggers"][0]["metadata"]
        assert scaled["consumerGroup"] == channel.group_id
        assert scaled["bootstrapServers"] == settings.bootstrap_servers
        assert (scaled["topic"],) == channel.topics

    def test_everything_selects_the_pods_of_the_deployment(self) -> None:
        labels = manifest("deployment")["spec"]["template"]["metadata"]["labels"]
        assert manifest("deployment")["spec"]["selector"]["matchLabels"] == labels
        assert manifest("poddisruptionbudget")["spec"]["selector"]["matchLabels"] == labels
        assert manifest("service")["spec"]["selector"] == labels
        selected = manifest("optional/servicemonitor")["spec"]["selector"]["matchLabels"]
        assert selected == manifest("service")["metadata"]["labels"]

    def test_nothing_runs_as_root_or_writes_to_its_own_files(self) -> None:
        pod = manifest("deployment")["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container()["securityContext"]["readOnlyRootFilesystem"] is True
        user = pod["securityContext"]["runAsUser"]
        assert f"USER {user}:{user}\n" in DOCKERFILE.read_text()
        assert COMPOSE["services"]["hello"]["read_only"] is True
        assert "DynamicUser=yes\n" in UNIT.read_text()

    def test_the_commands_and_their_options_exist(self) -> None:
        (of_image,) = re.findall(r"^CMD (\[.+\])$", DOCKERFILE.read_text(), re.MULTILINE)
        (of_unit,) = re.findall(r"^ExecStart=\S+/(.+)$", UNIT.read_text(), re.MULTILINE)
        top = commands.make_context("reactive-kafka", [], resilient_parsing=True)
        for words in (json.loads(of_image), of_unit.split(), container()["args"]):
            assert words[:3] == ["reactive-kafka", "run", "hello:app"]
            command = commands.get_command(top, "run")
            assert command is not None
            known = {option for parameter in command.params for option in parameter.opts}
            used = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert used - known == set()
            assert "--exit-on-failure" in used

    def test_variables_of_the_image_and_of_compose_are_settings(self) -> None:
        variables = dict(re.findall(r"(REACTIVE_KAFKA__\w+)=(\S+)", DOCKERFILE.read_text()))
        variables |= COMPOSE["services"]["hello"]["environment"]
        said = run(
            *(TOOLS / "python", "-m", "reactive_kafka", "check", "hello:app"),
            cwd=ROOT / "examples/hello",
            env={**variables, "PYTHONPATH": str(ROOT)},
        )
        assert "kafka:19092" in said
        assert "0.0.0.0" in said

    def test_compose_runs_the_kafka_that_the_tests_run(self) -> None:
        images = [service.get("image", "") for service in COMPOSE["services"].values()]
        kafkas = {image for image in images if image.startswith("apache/kafka")}
        assert kafkas == {f"apache/kafka:{KAFKA_VERSION}"}


@pytest.mark.release
class TestTheImage:
    def test_the_dockerfile_copies_what_the_build_needs(self, tmp_path: Path) -> None:
        """The build stage, played without Docker: its COPY lines, its backend, its wheel."""
        stage = DOCKERFILE.read_text().partition("AS build")[2].partition("\nFROM ")[0]
        copied = [line.split()[1:-1] for line in stage.splitlines() if line.startswith("COPY ")]
        for name in (name for names in copied for name in names):
            source, target = ROOT / name, tmp_path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        (packages,) = re.findall(r"lock-of\.sh (.+?) > build\.txt", stage)
        locked = run(tmp_path / "scripts/lock-of.sh", *packages.split(), cwd=tmp_path)
        (tmp_path / "build.txt").write_text(locked)

        uv = (TOOLS / "uv", "--quiet")
        venv = tmp_path / "venv"
        run(*uv, "venv", "--no-project", "--python", TOOLS / "python", venv, cwd=tmp_path)
        install = (*uv, "pip", "install", "--python", venv / "bin/python", "--no-deps")
        run(*install, "--require-hashes", "--requirement", "build.txt", cwd=tmp_path)
        build = ("--offline", "build", "--wheel", "--no-build-isolation", "--out-dir", "dist")
        run(*uv, *build, "--python", venv / "bin/python", cwd=tmp_path)
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        assert [file.name for file in (tmp_path / "dist").glob("*.whl")] == [
            f"reactive_kafka-{version}-py3-none-any.whl"
        ]

    def test_nothing_that_is_copied_is_ignored(self) -> None:
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        kept = [line.removeprefix("!") for line in ignored if line.startswith("!")]
        copies = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
        for name in " ".join(copies).split():
            assert any(name == one or name.startswith(f"{one}/") for one in kept), name

    def test_it_is_built_and_runs_its_command(self) -> None:
        docker = shutil.which("docker")
        answers = docker and subprocess.run([docker, "info"], capture_output=True).returncode == 0
        if not answers:
            reason = f"no Docker daemon answers; with {IN_DOCKER}=1 this is a failure"
            if os.environ.get(IN_DOCKER) == "1":
                pytest.fail(reason)
            pytest.skip(reason)
        tag = "reactive-kafka-test"
        built = subprocess.run(
            ["docker", "build", "--tag", tag, "."], cwd=ROOT, capture_output=True, text=True
        )
        assert built.returncode == 0, built.stderr[-3000:]
        check = [
            "docker",
            "run",
            "--rm",
            "--read-only",
            tag,
            "reactive-kafka",
            "check",
            "hello:app",
        ]
        ran = subprocess.run(check, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr[-3000:]
