"""deploy/ and the pages: every metric that an alert, a dashboard or a page names is exported, with those labels."""

import json
import re

import pytest

from tests.support.paths import ROOT
from tidelog.broker.metrics.table import GROUPS, HISTOGRAM

METRICS = {metric.name: metric for group in GROUPS for metric in group.metrics}
EXPORTED = {
    name + suffix: metric.labels
    for name, metric in METRICS.items()
    for suffix in (("_bucket", "_sum", "_count") if metric.kind == HISTOGRAM else ("",))
}
ALERTS = (ROOT / "deploy" / "alerts.yml").read_text()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana.json").read_text())
GIVEN_BY_PROMETHEUS = {"instance", "job", "le"}
NAME = re.compile(r"\btidelog_[a-z_]+\b")


def expressions() -> list[str]:
    targets = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
    asked = [variable["query"] for variable in DASHBOARD["templating"]["list"][1:]]
    return [target["expr"] for target in targets] + asked + re.findall(r"expr: (.*)", ALERTS)


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_uses_metrics_and_labels_that_exist(expression: str) -> None:
    names = set(NAME.findall(expression))
    assert names <= set(EXPORTED)
    assert names or expression.startswith("up")
    for labels in re.findall(r"by \(([^)]*)\)", expression):
        known = GIVEN_BY_PROMETHEUS.union(*(EXPORTED[name] for name in names))
        assert set(labels.split(", ")) <= known


def test_a_legend_and_a_summary_show_labels_of_their_metrics() -> None:
    shown = [
        (target["expr"], re.findall(r"{{(\w+)}}", target["legendFormat"]))
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]
    shown += [
        (re.findall(r"expr: (.*)", alert)[0], re.findall(r"\$labels\.(\w+)", alert))
        for alert in ALERTS.split("- alert: ")[1:]
    ]
    for expression, labels in shown:
        known = GIVEN_BY_PROMETHEUS.union(*(EXPORTED[name] for name in NAME.findall(expression)))
        assert set(labels) <= known, expression


def test_the_expressions_of_the_guide_for_operators_use_metrics_that_exist() -> None:
    guide = (ROOT / "docs" / "operations.md").read_text()
    names = set(NAME.findall(guide))
    assert "tidelog_disk_full" in names
    assert names <= {*EXPORTED, *METRICS}
