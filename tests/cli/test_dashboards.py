"""``dashboards``: the Grafana dashboard and the alert rules, against a real Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from reactive_kafka.cli.commands import commands
from reactive_kafka.cli.dashboards.dashboards_command import (
    ALERTS,
    DASHBOARD,
    alerts_text,
    dashboard_text,
)
from reactive_kafka.cli.workers.metric_sums import MetricSums, parsed
from tests.harness.prometheus import find_prometheus, running_prometheus
from tests.http.applike import FactsApp, served_on_a_port
from tests.observe.samples import (
    ORDERS_0,
    app,
    channel,
    durations,
    names_of_a_supervisor,
    names_of_series,
    outgoing,
    spark,
    totals,
)
from tests.pages import page

SITE = "https://reactive-kafka.github.io/reactive-kafka/"
OURS = re.compile(r"reactive_kafka_\w+")
KNOWN = names_of_series()


def queries() -> list[str]:
    """Every query of the dashboard."""
    panels = json.loads(dashboard_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(alerts_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def filled(query: str) -> str:
    """A query as Grafana sends it, with everything chosen."""
    for name, value in (
        ("$__rate_interval", "5s"),
        ("$__range", "10s"),
        ("$job", ".*"),
        ("$instance", ".*"),
        ("$channel", ".*"),
    ):
        query = query.replace(name, value)
    assert "$" not in query
    return query


def written(folder: Path, *arguments: str) -> Any:
    return CliRunner().invoke(commands, ["dashboards", "--to", str(folder), *arguments])


def test_the_files_are_written_and_a_changed_one_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    done = written(folder)
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [str(folder / DASHBOARD), str(folder / ALERTS)],
    )
    assert written(folder).exit_code == 0, "nothing has changed"
    (folder / ALERTS).write_text("groups: []\n")
    refused = written(folder)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--force replaces it" in refused.stderr
    assert (folder / ALERTS).read_text() == "groups: []\n"
    assert written(folder, "--force").exit_code == 0
    assert (folder / ALERTS).read_text() == alerts_text()
    nowhere = written(folder / ALERTS / "c")
    assert nowhere.exit_code == 1
    assert "cannot write" in nowhere.stderr


def test_every_metric_that_is_asked_for_exists() -> None:
    for query in (*queries(), *(rule["expr"] for rule in rules())):
        assert set(OURS.findall(query)) <= KNOWN, query


def test_every_query_of_the_dashboard_keeps_to_what_was_chosen() -> None:
    for query in queries():
        for selector in re.findall(r"reactive_kafka_\w+(\S*)", query):
            assert selector.startswith('{job=~"$job",instance=~"$instance"'), query


def test_the_panels_have_places_and_numbers_of_their_own() -> None:
    dashboard = json.loads(dashboard_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells), "two panels overlap"
    assert max(x for x, _ in cells) < 24
    assert all(panel["description"] for panel in panels if panel["type"] != "row")
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names == ["datasource", "job", "instance", "channel"]


# Panels and units that Grafana 11 to 13 have, as its packages @grafana/schema and @grafana/data say.
KINDS = {"row", "stat", "timeseries", "state-timeline"}
UNITS = {"none", "short", "s", "reqps", "recps", "ops"}
BUILT_IN = {"__rate_interval", "__range"}


def test_grafana_knows_every_panel_unit_and_variable() -> None:
    dashboard = json.loads(dashboard_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert {panel["type"] for panel in dashboard["panels"]} == KINDS
    assert {panel["fieldConfig"]["defaults"]["unit"] for panel in panels} == UNITS
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    asked = json.dumps([*panels, *variables.values()])
    used = set(re.findall(r"\$\{?(\w+)", asked)) - {"__all"}
    assert used == set(variables) | BUILT_IN, "each one is used, and no other one"
    for number, variable in enumerate(variables.values()):
        # A variable may use those before it.
        query = json.dumps(variable["query"])
        assert set(re.findall(r"\$(\w+)", query)) <= set(list(variables)[:number])


def test_a_legend_names_labels_that_its_query_keeps() -> None:
    for panel in json.loads(dashboard_text())["panels"]:
        targets = panel.get("targets", [])
        assert len({target["refId"] for target in targets}) == len(targets)
        for target in targets:
            kept = re.findall(r"by \(([^)]*)\)", target["expr"])
            labels = {label.strip() for names in kept for label in names.split(",")}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, panel["title"]
            assert target["legendFormat"], "series without a name show their whole query"


def test_every_alert_has_a_summary_a_severity_and_a_cure_that_exists() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        annotations = rule["annotations"]
        assert annotations["summary"]
        assert annotations["description"]
        name, _, anchor = annotations["runbook_url"].removeprefix(SITE).partition("/#")
        text = page(f"docs/{name.rstrip('/')}.md").read_text()
        headings = re.findall(r"^##+ (.+)$", text, re.MULTILINE)
        anchors = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings]
        assert not anchor or anchor in anchors, annotations["runbook_url"]


def test_the_page_lists_every_alert_with_its_severity() -> None:
    listed = re.findall(
        r"^\| (ReactiveKafka\w+) \| (\w+) \|", page("docs/metrics.md").read_text(), re.MULTILINE
    )
    assert listed == [(rule["alert"], rule["labels"]["severity"]) for rule in rules()]


# -- on a real Prometheus


def promtool(*arguments: str) -> str:
    """Run promtool, and return what it prints."""
    program = find_prometheus().with_name("promtool")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.prometheus
def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(alerts_text())
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(file))


def busy_app() -> FactsApp:
    """An application with one of everything that there are metrics of."""
    some = durations(0.02)
    busy = channel(
        handler_durations=some,
        commit_durations=some,
        record_ages=some,
        delivery_delays=some,
        totals={ORDERS_0: totals(received=20, acked=16, skipped={"filter": 1})},
        failure_strategies=("fail",),
    )
    facts = app(
        busy,
        outgoing=(outgoing(send_durations=some),),
        spark=(spark(job_durations=some),),
        actions={"pause": {"ok": 1}},
    )
    return FactsApp(facts)


def supervised_page(served: FactsApp) -> str:
    """The metrics of a supervisor of two workers."""
    text = served.metrics_text()
    sums = MetricSums()
    summed = sums.page({1: (1, parsed(text)), 2: (2, parsed(text))})
    lines = []
    for name in names_of_a_supervisor():
        lines += [f'{name}{{worker="{number}"}} 1' for number in (1, 2)]
    return summed + "\n".join([*lines, ""])


@pytest.mark.prometheus
async def test_every_query_finds_series_of_one_process_and_of_workers(tmp_path: Path) -> None:
    served = busy_app()

    async def metrics(_: object) -> PlainTextResponse:
        return PlainTextResponse(supervised_page(served))

    supervised = Starlette(routes=[Route("/metrics", metrics)])
    async with (
        served_on_a_port(served) as one,
        served_on_a_port(supervised) as two,
        running_prometheus([f"127.0.0.1:{one}", f"127.0.0.1:{two}"], tmp_path) as prometheus,
    ):
        await prometheus.until("sum(up)", 2)
        await prometheus.until("count(count_over_time(up[10s]) > 3)", 2)
        for query in queries():
            assert await prometheus.query(filled(query)), f"no series: {query}"
            alone = filled(query.replace("$instance", f"127.0.0.1:{one}"))
            if "reactive_kafka_worker" not in query:
                assert await prometheus.query(alone), f"no series of one process: {alone}"
        for rule in rules():
            await prometheus.query(rule["expr"])
        assert await prometheus.value('sum(reactive_kafka_lag_records{worker!=""})') == 10
        (panel,) = [query for query in queries() if query.startswith("sum(reactive_kafka_lag")]
        assert await prometheus.value(filled(panel)) == 15, "of one process, and of two workers"


WHO = 'job="shop",instance="a:9000"'
OF = f'{WHO},channel="orders"'
AT = f'{OF},topic="orders",partition="0"'

# Alert, then series of which it fires, then series of which it does not. One value a minute.
CASES: tuple[tuple[str, dict[str, str], dict[str, str]], ...] = (
    (
        "Down",
        {f"up{{{WHO}}}": "1x10 0x50", f"reactive_kafka_loop_lag_seconds{{{WHO}}}": "0x10 _x50"},
        {f"up{{{WHO}}}": "1x60", f"reactive_kafka_loop_lag_seconds{{{WHO}}}": "0x60"},
    ),
    (
        "NotReady",
        {f"reactive_kafka_channel_up{{{OF}}}": "1x50 0x10"},
        {f"reactive_kafka_channel_up{{{OF}}}": "1x58 0 1"},
    ),
    (
        "Poison",
        {f"reactive_kafka_poison_records_total{{{AT}}}": "0x55 1x5"},
        {f"reactive_kafka_poison_records_total{{{AT}}}": "3x60"},
    ),
    (
        "CommitsStuck",
        {
            f"reactive_kafka_position{{{AT}}}": "0+10x60",
            f"reactive_kafka_committed_offset{{{AT}}}": "7x60",
        },
        {
            f"reactive_kafka_position{{{AT}}}": "0+10x60",
            f"reactive_kafka_committed_offset{{{AT}}}": "0+10x60",
        },
    ),
    (
        "CommitsFail",
        {f'reactive_kafka_commits_total{{{OF},outcome="failed"}}': "0+1x60"},
        {f'reactive_kafka_commits_total{{{OF},outcome="ok"}}': "0+1x60"},
    ),
    (
        "LagGrows",
        {f"reactive_kafka_lag_records{{{AT}}}": "0+100x60"},
        {f"reactive_kafka_lag_records{{{AT}}}": "9000-100x60"},
    ),
    (
        "DeadLetters",
        {f"reactive_kafka_dead_letters_total{{{AT}}}": "0x55 1x5"},
        {f"reactive_kafka_dead_letters_total{{{AT}}}": "5x60"},
    ),
    (
        "RecordsIgnored",
        {f'reactive_kafka_records_nacked_total{{{AT},strategy="ignore"}}': "0x55 1x5"},
        {f'reactive_kafka_records_nacked_total{{{AT},strategy="dead-letter-queue"}}': "0+1x60"},
    ),
    (
        "OutputsLost",
        {f"reactive_kafka_outputs_lost_total{{{OF}}}": "0x55 1x5"},
        {f"reactive_kafka_outputs_lost_total{{{OF}}}": "1x60"},
    ),
    (
        "CrashLoop",
        {f"reactive_kafka_records_received_total{{{AT}}}": "1x32 5x2 1x2 5x2 1x2 5x2 1x2 5x20"},
        {f"reactive_kafka_records_received_total{{{AT}}}": "0+1x55 1x5"},
    ),
    (
        "CrashLoop",
        {f'reactive_kafka_worker_restarts_total{{{WHO},worker="1"}}': "0x50 1 2 3 4 4 4 4 4 4 4"},
        {f'reactive_kafka_worker_restarts_total{{{WHO},worker="1"}}': "0x50 1x10"},
    ),
    (
        "WorkerRestarted",
        {f'reactive_kafka_worker_restarts_total{{{WHO},worker="1"}}': "0x50 1x10"},
        {f'reactive_kafka_worker_restarts_total{{{WHO},worker="1"}}': "2x60"},
    ),
    (
        "ChannelFlaps",
        {f"reactive_kafka_channel_up{{{OF}}}": "1x44 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1"},
        {f"reactive_kafka_channel_up{{{OF}}}": "1x50 0 0 1x8"},
    ),
    (
        "Rebalances",
        {f'reactive_kafka_rebalances_total{{{OF},kind="revoked"}}': "0+1x60"},
        {f'reactive_kafka_rebalances_total{{{OF},kind="revoked"}}': "0x50 1x10"},
    ),
    (
        "LoopBlocked",
        {f"reactive_kafka_loop_lag_seconds{{{WHO}}}": "2x60"},
        {f"reactive_kafka_loop_lag_seconds{{{WHO}}}": "0.1x59 2"},
    ),
    (
        "StoreBehind",
        {f"reactive_kafka_checkpoint_unsynced_age_seconds{{{OF}}}": "0+2x60"},
        {f"reactive_kafka_checkpoint_unsynced_age_seconds{{{OF}}}": "5x60"},
    ),
    (
        "MetadataDropped",
        {f"reactive_kafka_metadata_dropped_total{{{OF}}}": "0x55 1x5"},
        {f"reactive_kafka_metadata_dropped_total{{{OF}}}": "1x60"},
    ),
    (
        "SparkBatchesFail",
        {f'reactive_kafka_spark_jobs_total{{{OF},outcome="failed"}}': "0+1x60"},
        {f'reactive_kafka_spark_jobs_total{{{OF},outcome="ok"}}': "0+1x60"},
    ),
    (
        "SparkAway",
        {f"reactive_kafka_spark_ready{{{OF}}}": "0x60"},
        {f"reactive_kafka_spark_ready{{{OF}}}": "0x50 1x10"},
    ),
)


def test_every_alert_is_tried() -> None:
    assert {f"ReactiveKafka{name}" for name, _, _ in CASES} == {rule["alert"] for rule in rules()}


def rule_test(alert: str, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    """A test of promtool: at minute 60 an alert fires, or none does."""
    return {
        "interval": "1m",
        "name": f"{alert} {'fires' if fires else 'does not fire'}",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="ReactiveKafka{alert}",alertstate="firing"}})',
                "eval_time": "60m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


@pytest.mark.prometheus
def test_every_alert_fires_when_it_should_and_is_silent_otherwise(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(alerts_text())
    tests: Sequence[dict[str, Any]] = [
        *(rule_test(name, fires, fires=True) for name, fires, _ in CASES),
        *(rule_test(name, silent, fires=False) for name, _, silent in CASES),
    ]
    file = tmp_path / "tests.yml"
    # JSON is YAML.
    file.write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    promtool("test", "rules", str(file))
