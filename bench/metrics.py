"""What can be measured, under one name for every contender, and how a figure is read and written."""

from typing import NamedTuple

Measures = dict[str, float]


class Metric(NamedTuple):
    """How a figure is read and written."""

    unit: str
    is_rate: bool = False  # more is better


METRICS = {
    "requests_s": Metric("requests/s", is_rate=True),
    "records_s": Metric("records/s", is_rate=True),
    "mb_s": Metric("MB/s", is_rate=True),
    "p50_us": Metric("us p50"),
    "p99_us": Metric("us p99"),
    "p999_us": Metric("us p99.9"),
    "cpu_us": Metric("us broker CPU a request"),
    "cpu_s_per_million": Metric("s broker CPU a million records"),
    "cpu_s_per_gb": Metric("s broker CPU a GB"),
    "cpu_percent": Metric("% of a core"),
    "client_cpu_us": Metric("us client CPU a request"),
    "client_cpu_s_per_million": Metric("s client CPU a million records"),
    "rss_mb": Metric("MB RSS"),
    "threads": Metric("threads"),
    "start_s": Metric("s to the first ack"),
    "create_s": Metric("s to create"),
    "restart_s": Metric("s clean restart to first ack"),
    "kill_s": Metric("s kill -9 to first ack"),
    "unreadable_s": Metric("s from expiry to unreadable"),
    "gone_s": Metric("s from expiry to files gone"),
}
