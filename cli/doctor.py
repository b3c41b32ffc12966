"""`tidelog doctor`: checks of a machine, a data folder and a broker, and what to do about what they find.

Changes nothing: the disk is timed with a file without a name.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from tidelog.cli.arguments import PATH, bootstrap_option, json_option
from tidelog.cli.connect import connected
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.output import alarming, to_json
from tidelog.cli.text import counted, examples, shown

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

FINE, WARNING, PROBLEM = "ok", "warning", "problem"
ANSWER_S: Final = 5.0
# What `adjtimex` returns while nothing synchronises the clock.
_NOT_SYNCHRONISED: Final = 5
_TIMEX_BYTES: Final = 512  # more than a `struct timex`
_SLOW_SYNC_MS: Final = 50
_LITTLE_SPACE: Final = 10  # per cent
_SCARCE_BYTES: Final = 256 << 20
# A partition has one file open, and a quarter of all descriptors is for sealed segments.
_SHARE_OF_PARTITIONS: Final = 4


class Finding(NamedTuple):
    """The result of a check."""

    check: str
    state: str
    found: str
    advice: str = ""


@click.command("doctor", epilog=examples("tidelog doctor", "tidelog doctor --data-dir data"))
@bootstrap_option
@click.option(
    "--data-dir",
    type=PATH,
    help="Check this data folder and this machine only, whether or not a broker runs.",
)
@json_option
def doctor(bootstrap: str, data_dir: Path | None, as_json: bool) -> int:
    """Check the clock, the disk, the limits and a broker. The exit code is 1 if there is a problem."""
    is_problem = False
    for each in _findings(bootstrap, data_dir):
        is_problem |= each.state == PROBLEM
        if as_json:
            print(to_json(each._asdict()))
        else:
            advice = f"; {each.advice}" if each.advice else ""
            state = f"{each.state:7}"
            print(
                state if each.state == FINE else alarming(state, is_warning=each.state == WARNING),
                shown(f" {each.check}: {each.found}{advice}"),
            )
    return FAILED if is_problem else OK


def _findings(bootstrap: str, data_dir: Path | None) -> Iterator[Finding]:
    yield _compiled()
    yield _clock()
    if data_dir is not None:
        yield from _disk(data_dir)
        return
    try:
        with connected(bootstrap, ANSWER_S) as cluster:
            yield from _of_cluster(cluster)
    except CommandError as error:
        yield Finding("broker", PROBLEM, str(error))


def _compiled() -> Finding:
    from tidelog import native
    from tidelog.protocol import compiled

    if not compiled.COMPILED:
        advice = "apt-get install gcc python3-dev, then install Tidelog again"
        return Finding("compiled", WARNING, "loops over bytes run interpreted, slower", advice)
    return Finding("compiled", FINE, f"loops over bytes compiled; requests {native.state()}")


def _clock() -> Finding:
    import ctypes

    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        state = -1
    if state == _NOT_SYNCHRONISED:
        advice = "run chrony or systemd-timesyncd: lookups by time are as exact as the clock"
        return Finding("clock", WARNING, "this machine's clock is not synchronised", advice)
    if state < 0:
        return Finding("clock", WARNING, "the system does not say whether the clock is synchronised")
    return Finding("clock", FINE, "this machine's clock is synchronised")


def _disk(folder: Path) -> Iterator[Finding]:
    from tidelog.storage import files, layout

    try:
        total, usable = files.space_bytes(folder)
        yield _space(str(folder), total, usable)
        if any(folder.iterdir()) and not (folder / layout.META).exists():
            advice = "name the data folder of a broker, or an empty folder, to time its disk"
            yield Finding("folder", WARNING, f"{folder} is no data folder: it has no {layout.META}", advice)
            return
        took_ms = 1000 * files.sync_time_s(folder)
        reports = files.FileSystem(folder).reports_errors()
    except (OSError, ImportError) as error:
        advice = "name the data folder of a broker, as a user who may write to it"
        yield Finding("disk", PROBLEM, f"{folder}: {getattr(error, 'strerror', None) or error}", advice)
        return
    flush = f"a flush takes {took_ms:.1f} ms"
    if took_ms > _SLOW_SYNC_MS:
        advice = "producers with acks=all wait for it: use a faster disk"
        yield Finding("flush", WARNING, flush, advice)
    else:
        yield Finding("flush", FINE, flush)
    if reports:
        yield Finding("file system", FINE, "reports lost writes")
    else:
        advice = "flushes of many partitions take longer: use ext4 or XFS"
        yield Finding("file system", WARNING, "does not report lost writes", advice)


def _space(folder: str, total: int, usable: int) -> Finding:
    percent = 100 * usable // max(total, 1)
    found = f"{folder}: {usable / (1 << 30):.1f} of {total / (1 << 30):.1f} GiB are free, {percent} %"
    advice = "make room, or let retention keep less (retention.bytes, retention.ms)"
    if usable < _SCARCE_BYTES:
        return Finding("disk", PROBLEM, found, advice)
    return (
        Finding("disk", WARNING, found, advice) if percent < _LITTLE_SPACE else Finding("disk", FINE, found)
    )


def _of_cluster(cluster: "Cluster") -> Iterator[Finding]:
    from tidelog.client import admin
    from tidelog.client.errors import explain

    described = cluster.metadata(None)
    for each in described.brokers:
        yield _reached(each.node_id, each.host, each.port)
    partitions = [
        (f"{topic.name}-{each.partition_index}", each.leader_id in each.offline_replicas)
        for topic in described.topics
        for each in topic.partitions
    ]
    if refusing := sorted(name for name, is_refusing in partitions if is_refusing):
        more = f" and {len(refusing) - 1} more" if len(refusing) > 1 else ""
        advice = "the log and /health say why"
        yield Finding("partitions", PROBLEM, f"{refusing[0]}{more} refuse writes", advice)
    else:
        yield Finding("partitions", FINE, f"{counted(len(partitions), 'partition')}, all take writes")
    for node, folders in admin.log_dirs(cluster, {}).items():
        for each in folders:
            if each.error_code:
                found = f"broker {node}, {each.log_dir}: {explain(each.error_code)}"
                yield Finding("disk", PROBLEM, found, "the log says why")
            elif _is_here(cluster, Path(each.log_dir)):
                yield from _disk(Path(each.log_dir))
                yield _descriptors(len(partitions))
            elif each.total_bytes >= 0:
                yield _space(f"broker {node}, {each.log_dir}", each.total_bytes, each.usable_bytes)


def _reached(node: int, host: str, port: int) -> Finding:
    from tidelog.client.connection import Connection
    from tidelog.client.errors import ClientError
    from tidelog.config.kinds import host_and_port

    where = f"broker {node} as advertised, {host_and_port(host, port)}"
    try:
        Connection(host, port, "tidelog-cli", ANSWER_S).close()
    except ClientError as error:
        advice = "set advertised.listeners to an address that clients reach"
        return Finding("reachable", PROBLEM, f"{where}: {error}", advice)
    return Finding("reachable", FINE, f"{where} answers")


def _is_here(cluster: "Cluster", folder: Path) -> bool:
    """Tell whether a folder of the cluster is on this machine: it has the cluster's id."""
    from tidelog.storage import layout

    try:
        text = (folder / layout.META).read_text(errors="replace")
    except OSError:
        return False
    return f"cluster.id={cluster.metadata([]).cluster_id}" in text.splitlines()


def _descriptors(partitions: int) -> Finding:
    """Compare the limit of this process, which is that of a broker started from here, with what partitions need."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{most} files may be open (ulimit -Hn), for {counted(partitions, 'partition')}"
    if most != resource.RLIM_INFINITY and partitions * _SHARE_OF_PARTITIONS > most:
        state = PROBLEM if partitions > most else WARNING
        return Finding("descriptors", state, found, f"allow {partitions * _SHARE_OF_PARTITIONS} or more")
    return Finding("descriptors", FINE, found if most != resource.RLIM_INFINITY else "no limit")
