"""DATA/.admin: who may connect, what is answered, and what becomes of the file."""

import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tidelog.cli.connect import connected
from tidelog.cli.data_folder import data_folder
from tidelog.cli.errors import CommandError
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest

pytestmark = pytest.mark.e2e


def test_a_command_finds_the_socket_in_the_folder_that_the_broker_names(tmp_path: Path) -> None:
    with Broker(tmp_path / "data").start() as broker, connected(broker.address) as cluster:
        with data_folder(cluster) as folder:
            assert folder.path == tmp_path / "data"
            with pytest.raises(CommandError, match="there is no command 'pong'; did you mean 'ping'"):
                folder.ask("pong")
            with pytest.raises(CommandError, match=r'a command is an object such as {"do": "ping", '):
                folder.ask(1)  # type: ignore[arg-type]
            for process in ("", "..", "a/b", "\0", "\ud800"):  # the name of a folder
                with pytest.raises(CommandError, match="there is no process"):
                    folder.ask("backup", process=process)
        assert (folder.path / ".admin").stat().st_mode & 0o777 == 0o600
        broker.stop()
    assert not (tmp_path / "data" / ".admin").exists()


def test_the_socket_of_a_killed_broker_is_replaced(tmp_path: Path) -> None:
    with Broker(tmp_path / "data").start() as broker:
        broker.kill()
        assert (tmp_path / "data" / ".admin").exists()
        broker.start()
        with connected(broker.address) as cluster, data_folder(cluster) as folder:
            assert folder.ask("ping") == {}


def test_a_command_that_names_another_cluster_is_refused(tmp_path: Path) -> None:
    with Broker(tmp_path / "data").start(), socket.socket(socket.AF_UNIX) as there:
        there.settimeout(30)
        there.connect(str(tmp_path / "data" / ".admin"))
        lines = there.makefile("rb")
        for line in (b'{"do": "ping", "cluster_id": "other"}\n', b'{"do": "ping"}\n'):
            there.sendall(line)
            answer = json.loads(lines.readline())
            assert not answer["ok"]
            assert "another cluster" in answer["error"]


def test_a_broker_starts_where_no_socket_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("#\nversion=1\ncluster.id=x\nnode.id=1\n")
    (tmp_path / "data" / ".admin").mkdir()
    with Broker(tmp_path / "data").start() as broker, connected(broker.address) as cluster:
        assert broker.printed.count("no socket in the data folder") == 1
        with (
            pytest.raises(CommandError, match="run this command on the broker's machine"),
            data_folder(cluster),
        ):
            pass


def test_the_figures_of_connections_come_in_pages(tmp_path: Path) -> None:
    with (
        Broker(tmp_path / "data").start() as broker,
        connected(broker.address) as cluster,
        ExitStack() as open_sockets,
        data_folder(cluster) as folder,
    ):
        idle = [
            open_sockets.enter_context(socket.create_connection((broker.host, broker.port)))
            for _ in range(230)
        ]
        idle[-1].sendall(encode_request(API_VERSIONS, 2, 1, "raw", ApiVersionsRequest())[:10])
        for connection in idle[:-1]:  # an answer shows that the broker has accepted the connection
            connection.sendall(encode_request(API_VERSIONS, 2, 1, "raw", ApiVersionsRequest()))
            connection.recv(4)
        first = folder.ask("clients", after=0)["clients"]
        rest = folder.ask("clients", after=first[-1]["connection"])["clients"]
        assert folder.ask("clients", after=rest[-1]["connection"])["clients"] == []
    found = [*first, *rest]
    assert len(first) < len(found) == 1 + len(idle)
    assert [each["connection"] for each in found] == sorted({each["connection"] for each in found})
    ours, *others, last = found
    assert ours["client_id"] == "tidelog-cli"
    assert ours["requests"] > 0
    assert min(ours["received_bytes"], ours["sent_bytes"]) > 0
    assert {(each["client_id"], each["requests"]) for each in others} == {("raw", 1)}
    assert (last["client_id"], last["requests"], last["sent_bytes"]) == (None, 0, 0)
