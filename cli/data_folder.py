"""The connection of a command to DATA/.admin, the socket in the data folder of the broker at `--bootstrap`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import UNREACHABLE

if TYPE_CHECKING:
    from tidelog.cli.control_client import ControlClient
    from tidelog.client.cluster import Cluster


class DataFolder:
    """A connection to a running broker of this machine; `path` is its data folder."""

    def __init__(self, path: Path, client: "ControlClient", cluster_id: str) -> None:
        """Use a connection to the broker of a cluster."""
        self.path = path
        self._client = client
        self._cluster_id = cluster_id

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Run a command of `broker.admin`, and return its answer; CommandError with the broker's reason."""
        from tidelog.cli.control_client import ControlError, NoControl

        try:
            return self._client.ask(do, cluster_id=self._cluster_id, **arguments)
        except ControlError as error:
            raise CommandError(str(error)) from error
        except NoControl as error:
            raise CommandError(str(error), UNREACHABLE) from error


@contextmanager
def data_folder(cluster: "Cluster") -> Iterator[DataFolder]:
    """Connect to the socket in the data folder that the broker of a cluster names; CommandError if it is not here."""
    from tidelog.broker.control_protocol import ADMIN
    from tidelog.cli.control_client import ControlClient, NoControl
    from tidelog.client import admin

    found = admin.log_dirs(cluster, {})
    path = next((Path(each.log_dir) for results in found.values() for each in results), None)
    cluster_id = cluster.metadata([]).cluster_id
    if path is None or cluster_id is None:
        raise CommandError("the broker names no data folder; this command needs a Tidelog broker")
    advice = "run this command on the broker's machine, as the user that the broker runs as"
    try:
        client = ControlClient(path, ADMIN, advice, answered_within_s=None)
    except NoControl as error:
        raise CommandError(str(error), UNREACHABLE) from error
    try:
        folder = DataFolder(path, client, cluster_id)
        folder.ask("ping")
        yield folder
    finally:
        client.close()
