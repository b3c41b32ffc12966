"""Makes the consistent cut of a running broker that `tidelog backup` copies: all logs, the catalogue, the checkpoints.

All ends are read in one turn of the event loop. So no committed offset and no record lies after the end of what it was
made from. The maintenance thread waits for that turn and makes the links before it does anything else, so no segment is
deleted or replaced in between. Owns the content of the cut's folder beside the logs. `storage.cut` links the logs.
"""

import json
import re
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidelog.broker.broker import Broker
from tidelog.broker.catalog import CATALOG_FILE
from tidelog.broker.work import step
from tidelog.storage import checkpoints, cut, files, layout, pins
from tidelog.storage.cut import Cut
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log

# How often the maintenance thread looks if the broker stops while it waits for the event loop.
_LOOK_EVERY_S: Final = 0.05


async def make(broker: Broker, process: str) -> dict[str, Any]:
    """Make the cut of a process of this machine; return its folder, topics and partitions, and the problems of logs.

    Maintenance thread. StorageError.
    """
    await step()
    if not re.fullmatch(r"\w[\w.-]*", process) or pins.has_ended(process):
        raise StorageError(f"there is no process {process!r}")
    data = broker.logs.directory
    folder = cut.folder_of(data, process)
    cut.remove(folder)
    with files.whole(folder, folder):
        files.make_folder(folder)
        return _make(broker, data, folder)


def _make(broker: Broker, data: Path, folder: Path) -> dict[str, Any]:
    logs = broker.logs.logs
    known = cut.summaries(log for log in logs.values() if log.unopened is None)
    # A topic that is being deleted is still served for a moment, but its logs are gone.
    cuts = [each for each in _taken(broker) if logs.get((each.log.topic, each.log.partition)) is each.log]
    sizes: dict[str, int] = {}
    problems: dict[str, str] = {}
    for each in cuts:
        log = each.log
        try:
            if log.unopened is not None:
                problems[str(log)] = (
                    f"could not be opened: {log.unopened}; its files are in the backup as they are"
                )
                cut.link_unopened(log, folder / str(log))
                continue
            sizes[f"{log}/{each.segments[-1].name(layout.LOG)}"] = cut.link(each, folder / str(log), known)
            if log.damaged:
                problems[str(log)] = f"damaged, and so in the backup: {', '.join(log.damaged)}"
        except OSError as error:
            files.remove_folder(folder / str(log))
            sizes = {name: size for name, size in sizes.items() if not name.startswith(f"{log}/")}
            problems[str(log)] = f"not in the backup: {error}"
    broker.catalog.copy(folder / CATALOG_FILE)
    files.write(folder / layout.META, files.load(data / layout.META) or b"")
    checkpoints.save_offsets(folder / layout.RECOVERY_POINTS, {_key(each.log): each.end for each in cuts})
    checkpoints.save_offsets(folder / layout.LOG_STARTS, {_key(each.log): each.start for each in cuts})
    about = {
        "cluster_id": broker.cluster_id,
        "node_id": broker.node_id,
        "made_ms": broker.clock.now_ms(),
        "topics": len({each.log.topic for each in cuts}),
        "partitions": len(cuts),
        "problems": problems,
    }
    files.write(folder / cut.PLAN, json.dumps({"about": about, "sizes": sizes}).encode())
    return {"folder": str(folder)}


def _key(log: Log) -> tuple[str, int]:
    return log.topic, log.partition


def _taken(broker: Broker) -> list[Cut]:
    """Return all logs as of one turn of the event loop. Raise StorageError if the broker stops."""
    taken: Future[list[Cut]] = Future()
    broker.loop.call_soon_threadsafe(partial(_take, broker, taken))
    while not wait([taken], _LOOK_EVERY_S).done:
        # A stop waits for this thread on the event loop.
        if broker.topics.is_stopping:
            raise StorageError("the broker stops")
    return taken.result()


def _take(broker: Broker, taken: "Future[list[Cut]]") -> None:
    try:
        taken.set_result([cut.take(each.log) for topic in broker.topics.all() for each in topic.partitions])
    except OSError as error:
        taken.set_exception(error)
