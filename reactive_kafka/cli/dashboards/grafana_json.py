"""Makes Grafana's JSON of a dashboard from its panels. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactive_kafka.cli.dashboards.panels import HERE, Panel, PanelRow

SCHEMA_VERSION = 39
"""Of Grafana 11. Later ones read it, and write it as their own when it is saved."""
_WIDTH = 24
_STATS_IN_LINE = 4
_CHARTS_IN_LINE = 2
_STAT_HEIGHT = 4
_CHART_HEIGHT = 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_json(rows: Sequence[PanelRow]) -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": "reactive-kafka",
        "title": "reactive_kafka",
        "tags": ["kafka", "reactive_kafka"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "panels": _panels(rows),
    }


def _variables() -> list[dict[str, Any]]:
    chosen = HERE.replace("}", "")
    return [
        {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
            "options": [],
        },
        _variable("job", "label_values(reactive_kafka_loop_lag_seconds, job)"),
        _variable(
            "instance",
            'label_values(reactive_kafka_loop_lag_seconds{job=~"$job"}, instance)',
        ),
        _variable("channel", f"label_values(reactive_kafka_channel_up{chosen}}}, channel)"),
    ]


def _variable(name: str, query: str) -> dict[str, Any]:
    """Return a variable of which several values, or all, may be chosen."""
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        # At each change of the time range.
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def _panels(rows: Sequence[PanelRow]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
                "panels": [],
            }
        )
        y += 1
        x = 0
        height = 0
        for panel in row.panels:
            is_stat = panel.kind == "stat"
            width = _WIDTH // (_STATS_IN_LINE if is_stat else _CHARTS_IN_LINE)
            if x + width > _WIDTH:
                x = 0
                y += height
            height = _STAT_HEIGHT if is_stat else _CHART_HEIGHT
            place = {"x": x, "y": y, "w": width, "h": height}
            found.append(_panel(panel, len(found) + 1, place))
            x += width
        y += height
    return found


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any] = {}
    if panel.kind == "timeseries":
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    elif panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}}
    else:
        defaults["mappings"] = [
            {
                "type": "value",
                "options": {
                    "0": {"text": "not ready", "color": "red"},
                    "1": {"text": "ready", "color": "green"},
                },
            }
        ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                "editorMode": "code",
                "range": True,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
