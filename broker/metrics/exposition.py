"""Writes metrics in Prometheus's text format (version 0.0.4).

A broker of thousands of partitions has tens of thousands of lines. prometheus_client takes some 25 us for each, this
module less than one. The tests check its output with prometheus_client's parser.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from tidelog.broker.metrics.table import HISTOGRAM, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

# (labels as `labels` writes them, value)
Sample = tuple[str, float]


def labels(names: Sequence[str], values: Sequence[object]) -> str:
    """Return labels in braces, as they follow a metric's name; nothing if there are none."""
    if not names:
        return ""
    pairs = [f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}"


def heading(metric: Metric) -> str:
    """Return the lines before a metric's samples."""
    return f"# HELP {metric.name} {metric.doc}\n# TYPE {metric.name} {metric.kind}\n"


def text(metric: Metric, samples: Iterable[Sample], *, with_heading: bool = True) -> str:
    """Return the lines of a counter or a gauge; nothing without samples."""
    body = "".join(f"{metric.name}{label} {value}\n" for label, value in samples)
    return heading(metric) + body if body and with_heading else body


def histogram(
    metric: Metric, bounds: Sequence[float], samples: Iterable[tuple[Sequence[object], Sequence[int], float]]
) -> str:
    """Return a histogram. A sample is the values of its labels, its counts by bound and above, and its sum."""
    assert metric.kind == HISTOGRAM
    made = []
    for values, counts, total in samples:
        names = (*metric.labels, "le")
        for bound, count in zip((*map(repr, bounds), "+Inf"), accumulate(counts), strict=True):
            made.append(f"{metric.name}_bucket{labels(names, (*values, bound))} {count}\n")
        label = labels(metric.labels, values)
        made.append(f"{metric.name}_sum{label} {total}\n{metric.name}_count{label} {sum(counts)}\n")
    return heading(metric) + "".join(made) if made else ""
