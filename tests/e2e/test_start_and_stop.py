"""Starting and stopping: what scripts rely on, and the one line that says why a broker cannot start."""

import os
import re
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

from bench.kafka import free_port
from tests.support.broker import COMMAND, Broker, environment, run_to_end, wait_until
from tests.support.paths import ROOT
from tests.support.raw_client import FETCH, RawClient
from tests.support.small_disk import fill
from tests.support.workload import one_batch
from tidelog.broker.catalog import CATALOG_FILE, Catalog, TopicRecord, new_topic_id
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

pytestmark = pytest.mark.e2e

NEW_BROKER = Callable[..., Broker]


def serve(data_dir: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `tidelog serve` where it should end by itself, and soon."""
    return run_to_end("serve", "--data-dir", str(data_dir), "--port", "0", *arguments, timeout_s=20)


def assert_one_line_of_refusal(done: "subprocess.CompletedProcess[str]", *words: str) -> None:
    """A refusal is a non-zero status, one line on standard error that says what is wrong, and nothing else."""
    assert done.returncode not in {0, -signal.SIGTERM, -signal.SIGKILL}
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in lines[0]


# -- starting --------------------------------------------------------------------------------------------------


def test_a_missing_data_folder_is_made(new_broker: NEW_BROKER) -> None:
    broker = new_broker(name="not/yet/there")
    with RawClient(broker) as client:
        client.create("t", 2)
        client.produce("t", one_batch(1), 1)
    assert {path.name for path in broker.data_dir.iterdir() if path.is_dir()} == {"t-0", "t-1"}
    assert (broker.data_dir / "t-1" / f"{0:020}.log").stat().st_size == len(one_batch(1))


def test_start_up_line_says_address_folder_and_kernel(new_broker: NEW_BROKER) -> None:
    broker = new_broker()
    # The ready file is written before this line is printed.
    wait_until(lambda: " listens on " in broker.printed)
    said = broker.printed
    assert str(broker.port) in said
    assert str(broker.data_dir) in said
    assert re.search(r"\b(compiled|interpreted)\b", said)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "127.0.0.1", "127.0.0.2", "[::1]"])
def test_the_command_that_the_greeting_names_can_be_pasted(tmp_path: Path, host: str) -> None:
    """From where it was started, with the address that it says."""
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    link = tmp_path / "a folder" / "tidelog"
    link.parent.mkdir()
    link.symlink_to(COMMAND)
    command = ["a folder/tidelog", "serve", "--data-dir", "data", "--port", "0", "--log-level", "error"]
    with subprocess.Popen(
        [*command, "--config", f"listeners=PLAINTEXT://{host}:0"],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(),
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            listens, tried = process.stdout.readline(), process.stdout.readline()
            assert "0.0.0.0" not in tried
            assert "listens on" in listens
            pasted = tried.removeprefix("Try: ")
            done = subprocess.run(
                pasted,
                shell=True,
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=30,
            )
            assert (done.returncode, done.stdout) == (0, "1 record acknowledged\n"), (pasted, done.stderr)
        finally:
            process.terminate()
            process.wait(20)


def test_the_greeting_names_the_command_as_the_shell_finds_it(tmp_path: Path) -> None:
    variables = {**environment(), "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["tidelog", "topics", "list", "--bootstrap", "127.0.0.1:1"],
        env=variables, capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert done.stderr.endswith("Connection refused; start one with tidelog serve --port 1\n")


def test_once_ready_every_partition_can_be_written_and_read(new_broker: NEW_BROKER) -> None:
    """There is no grace of NOT_LEADER answers behind the ready-file."""
    broker = new_broker()
    with RawClient(broker) as client:
        client.create("t", 20)
        for partition in range(20):
            assert client.produce("t", one_batch(1), partition).error_code == 0
    for end in (broker.stop, broker.kill):
        end()
        broker.start()
        with RawClient(broker) as client:
            for partition in range(20):
                before = client.list_offsets("t", -1, partition).offset
                assert client.produce("t", one_batch(1), partition).base_offset == before
                assert client.fetch("t", 0, partition).error_code == 0


def test_idle_memory_is_small(new_broker: NEW_BROKER) -> None:
    assert new_broker().rss_bytes <= 60_000_000


def test_an_idle_broker_has_the_threads_that_it_names(new_broker: NEW_BROKER) -> None:
    """Event loop, flusher, maintenance and cleaner. A lookup of the listener's address would add four."""
    broker = new_broker()
    assert len(os.listdir(f"/proc/{broker.pid}/task")) == 4


def test_two_brokers_on_two_folders(new_broker: NEW_BROKER) -> None:
    first, second = new_broker(name="first"), new_broker(name="second")
    with RawClient(first) as client:
        client.create("t")
    with RawClient(second) as client:
        assert client.list_offsets("t", -1).error_code == 3


# -- refusing to start -----------------------------------------------------------------------------------------


def test_second_broker_on_the_same_folder(new_broker: NEW_BROKER) -> None:
    broker = new_broker()
    assert_one_line_of_refusal(serve(broker.data_dir), str(broker.data_dir))
    with RawClient(broker) as client:
        client.create("t")
        assert client.produce("t", one_batch(1)).base_offset == 0


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("log.retention.hour=1", ["log.retention.hour", "log.retention.hours"]),
        ("no.such.option.at.all=1", ["no.such.option.at.all"]),
        ("log.segment.bytes=many", ["log.segment.bytes", "many"]),
        ("log.segment.bytes=-1", ["log.segment.bytes", "-1"]),
        ("num.partitions=0", ["num.partitions", "0"]),
        ("log.message.timestamp.type=Sometimes", ["log.message.timestamp.type", "Sometimes"]),
        ("nonsense", ["nonsense"]),
    ],
)
def test_bad_option(tmp_path: Path, override: str, words: list[str]) -> None:
    assert_one_line_of_refusal(serve(tmp_path / "data", "--config", override), *words)
    assert not (tmp_path / "data").exists()


def test_bad_option_in_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nlog.segment.byts=1000000\n")
    refused = serve(tmp_path / "data", "--config-file", str(file))
    assert_one_line_of_refusal(refused, "log.segment.byts", "log.segment.bytes", str(file))
    arguments = ["serve", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    refused = run_to_end(*arguments, timeout_s=20, environ={"KAFKA_LOG_SEGMENT_BYTES": "few"})
    assert_one_line_of_refusal(refused, "few")


def foreign_file(folder: Path) -> None:
    folder.write_text("I am no folder")


def foreign_files(folder: Path) -> None:
    folder.mkdir()
    (folder / "holiday.jpg").write_bytes(b"\xff\xd8")


def foreign_version(folder: Path) -> None:
    folder.mkdir()
    (folder / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n")


def foreign_node(folder: Path) -> None:
    folder.mkdir()
    (folder / "meta.properties").write_text("version=1\nnode.id=77\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n")


@pytest.mark.parametrize("make", [foreign_file, foreign_files, foreign_version, foreign_node])
def test_data_folder_of_another_kind(tmp_path: Path, make: Callable[[Path], None]) -> None:
    folder = tmp_path / "data"
    make(folder)
    before = {path: path.read_bytes() for path in [folder, *folder.rglob("*")] if path.is_file()}
    assert_one_line_of_refusal(serve(folder), str(folder))
    # Not even a lock is left in what is not ours.
    after = {path: path.read_bytes() for path in [folder, *folder.rglob("*")] if path.is_file()}
    assert after == before


def test_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_to_end("serve", "--data-dir", str(tmp_path / "data"), "--port", port, timeout_s=20)
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert len(lines) == 1
    assert f"port {port} is in use" in lines[0]
    assert f"choose another with --port; to see which process uses it: ss -ltnp sport = :{port}" in lines[0]


def test_address_that_is_not_ours(tmp_path: Path) -> None:
    for host, reason in (("192.0.2.1", "Cannot assign requested address"), ("no.such.host.invalid", "")):
        done = serve(tmp_path / "data", "--config", f"listeners=PLAINTEXT://{host}:9092")
        lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
        assert (done.returncode, len(lines)) == (1, 1), done.stderr
        assert f"cannot listen on PLAINTEXT://{host}:0: {reason}" in lines[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-flag"],
        ["--port", "many"],
        ["--port", "65536"],
        ["--port", "99999"],
        ["--port", "-1"],
        ["--log-level", "chatty"],
        ["--config", "nonsense"],
        ["--config", "no.such.option=1"],
        ["--config", "num.partitions=0"],
        ["--config", "listeners=PLAINTEXT://127.0.0.1:99999"],
        ["--config-file", "/no/such/file"],
        ["--config", "listeners=PLAINTEXT://a..b:0"],
        ["--config", f"listeners=PLAINTEXT://{'a' * 64}:0"],
        ["--ready-file", "."],
        ["--ready-file", ""],
        ["--ready-file", "/no/such/folder/ready"],
        ["--ready-file", "/proc/self/fd/1"],
    ],
    ids=" ".join,
)
def test_bad_command_line_is_status_2(tmp_path: Path, arguments: list[str]) -> None:
    done = run_to_end("serve", "--data-dir", str(tmp_path / "data"), *arguments, timeout_s=20)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("tidelog: ")
    assert not (tmp_path / "data").exists()


def test_no_such_verb_is_status_2() -> None:
    assert run_to_end("no-such-command", timeout_s=20).returncode == 2


def no_traceback(text: str) -> None:
    assert "Traceback" not in text
    assert "Exception ignored" not in text


def test_no_room_when_it_starts_is_one_line_and_no_hindrance_later(small_disk: Path) -> None:
    filler = fill(small_disk)
    for room in (0, 4096, 16384):
        with filler.open("ab") as file:
            file.truncate(filler.stat().st_size - room)
        done = serve(small_disk / "data")
        lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
        assert (done.returncode, len(lines)) == (1, 1), done.stderr
        assert str(small_disk / "data") in lines[0]
        assert "No space left on device" in lines[0] or "the disk is full" in lines[0]
        no_traceback(done.stderr)
        fill(small_disk)
    filler.unlink()
    with Broker(small_disk / "data") as broker:
        broker.start().stop()


def test_no_room_when_it_stops_is_status_1_and_no_traceback(small_disk: Path) -> None:
    with Broker(small_disk / "data") as broker, RawClient(broker.start()) as client:
        client.create("t")
        assert client.produce("t", one_batch(3)).error_code == 0
        fill(small_disk).touch()
        while client.produce("t", one_batch(50, value_bytes=1000)).error_code == 0:
            pass
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(20) == 1
        no_traceback(broker.printed)
        assert "No space left on device" in broker.printed
        assert broker.printed.splitlines()[-1].startswith("tidelog: not everything could be written to disk")


def test_P12_a_start_on_a_full_disk_with_folders_to_make_serves_and_makes_them_once_there_is_space(
    small_disk: Path, tmp_path: Path
) -> None:
    """As a kill between the catalogue and the folders leaves it, and within 10 s of there being space."""
    (small_disk / "data").mkdir()
    data = tmp_path / "data"  # what is printed has a disk of its own
    data.symlink_to(small_disk / "data")
    with Broker(data) as broker:
        with RawClient(broker.start()) as client:
            client.create("t")
            assert client.produce("t", one_batch(3)).error_code == 0
        broker.kill()
        catalog = Catalog(data / CATALOG_FILE)
        catalog.add_topic(TopicRecord("new", new_topic_id(), 3, {}))
        catalog.close()
        filler = fill(small_disk)
        with RawClient(broker.start()) as client:
            (new,) = client.metadata("new", create=False).topics
            assert [partition.offline_replicas for partition in new.partitions] == [[1]] * 3
            assert client.produce("new", one_batch(1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert [size for size, _ in client.batches("t")] == [0]
            filler.unlink()
            wait_until(lambda: client.produce("new", one_batch(1), 2).error_code == 0, 10)
            wait_until(lambda: all((data / f"new-{number}").is_dir() for number in range(3)), 10)
            assert client.produce("t", one_batch(1)).error_code == 0
        broker.stop()


@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_a_device_that_takes_no_output_does_not_keep_it_from_serving(tmp_path: Path, stream: str) -> None:
    ready = tmp_path / "ready"
    command = [str(COMMAND), "serve", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    with open("/dev/full", "wb") as full, open(os.devnull, "wb") as nowhere:
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready)],
            stdout=full if stream != "stderr" else nowhere,
            stderr=full if stream != "stdout" else subprocess.PIPE,
            env=environment(),
        )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None)
        process.terminate()
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    no_traceback((err or b"").decode())


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["serve", "--help"], ["dump", "LOG"], ["topics", "list"], ["tail", "t"]],
    ids=" ".join,
)
def test_a_device_that_takes_no_output_is_one_line_and_status_1(
    shared_broker: Broker, tmp_path: Path, arguments: list[str]
) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(one_batch(3))
    with RawClient(shared_broker) as client:
        client.create("t")
        assert client.produce("t", one_batch(1)).error_code == 0
    line = [str(COMMAND), *(str(log) if word == "LOG" else word for word in arguments)]
    variables = {**environment(), "TIDELOG_BOOTSTRAP": shared_broker.address}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, env=variables, timeout=20)
        assert (done.returncode, done.stderr) == (1, "tidelog: standard output: No space left on device\n")
        closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *line], env=variables, timeout=20)
        assert closed.returncode == 0


# -- stopping --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_orderly_stop_is_status_0_and_leaves_a_clean_folder(
    new_broker: NEW_BROKER, how: signal.Signals
) -> None:
    broker = new_broker()
    with RawClient(broker) as client:
        client.create("t")
        client.produce("t", one_batch(3))
        # An idle connection must not hold up the stop.
        broker.stop(how, timeout_s=20)
        assert client.is_closed_by_peer()
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in broker.printed
    broker.start()
    with RawClient(broker) as client:
        assert client.produce("t", one_batch(1)).base_offset == 3


@pytest.mark.parametrize("is_there", [True, False])
def test_a_service_manager_is_notified_once_requests_are_answered(
    new_broker: NEW_BROKER, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(20)
        address = str(tmp_path / "notify")
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        if is_there:
            manager.bind(address)
        broker = new_broker()
        if is_there:
            assert manager.recv(100) == b"READY=1"
    with RawClient(broker) as client:
        assert client.api_versions()
    assert ("service manager not notified" in broker.printed) == (not is_there)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_the_unit_of_the_guide_is_one_that_systemd_takes(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "operations.md").read_text()
    unit = re.findall(r"```ini\n(.*?)```", guide, re.DOTALL)[0]
    # systemd looks for the program and the user on this machine.
    unit = unit.replace("/opt/tidelog/bin/tidelog", sys.executable).replace("User=tidelog", "User=root")
    (tmp_path / "tidelog.service").write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "tidelog.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "tidelog.service" in line]
    assert (done.returncode, said) == (0, [])


def test_under_nohup_it_outlives_its_terminal(new_broker: NEW_BROKER) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does, and what it starts inherits
    try:
        broker = new_broker()
    finally:
        signal.signal(signal.SIGHUP, before)
    broker.send_signal(signal.SIGHUP)
    with RawClient(broker) as client:
        assert client.api_versions()
    broker.stop()


def test_stop_answers_a_fetch_that_waits(new_broker: NEW_BROKER) -> None:
    port = free_port()
    broker = new_broker({"http.port": str(port)})

    def waits() -> bool:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return b"tidelog_waiting_fetches 1" in answer.read()

    with RawClient(broker) as client:
        client.create("t")
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[wanted])]
        client.send(
            FETCH, 12, FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
        )
        wait_until(waits)
        began = time.monotonic()
        broker.stop(timeout_s=10)
        assert time.monotonic() - began < 5
        _, answer = client.receive(FETCH, 12)
        assert answer.responses[0].partitions[0].error_code == 0


def test_stop_while_a_request_is_half_there(new_broker: NEW_BROKER) -> None:
    broker = new_broker()
    with RawClient(broker) as client:
        client.send_bytes(b"\x00\x00\x10\x00half")
        broker.stop(timeout_s=20)


def test_stop_while_starting(new_broker: NEW_BROKER) -> None:
    """A service manager may change its mind: whenever the signal comes, the broker ends and the folder is whole."""
    broker = new_broker()
    broker.stop()
    clean = broker.data_dir / ".kafka_cleanshutdown"
    moments: list[Callable[[], bool]] = [
        lambda: True,
        lambda: "uvloop" in Path(f"/proc/{broker.pid}/maps").read_text(),  # its modules are being loaded
        lambda: not clean.exists(),  # it has begun to open the data folder
        lambda: "listening" in broker.printed,
    ]
    for has_come in moments:
        broker.spawn()
        wait_until(lambda has_come=has_come: has_come() or not broker.is_running)  # type: ignore[misc]
        broker.send_signal(signal.SIGTERM)
        # Before the handler is there, the signal's default action ends the process.
        assert broker.wait(5) in {0, -signal.SIGTERM}
    broker.restart() if broker.is_running else broker.start()


def test_ctrl_c_while_it_is_being_loaded_is_no_traceback(tmp_path: Path) -> None:
    """Python takes a while to load a command: wherever in it the signal comes, it is the end and no error of ours."""
    script = "import sys, tidelog.cli.entry; sys.meta_path.insert(0, type('', (), {'find_spec': interrupt}));"
    before = "interrupt = lambda name, *_: os.kill(os.getpid(), signal.SIGINT) if name == 'click' else None;"
    done = subprocess.run(
        [sys.executable, "-c", f"import os, signal; {before} {script} tidelog.cli.entry.run()", "serve"],
        capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_the_ready_file_of_an_ipv6_listener_is_taken_by_every_client(new_broker: NEW_BROKER) -> None:
    broker = new_broker(overrides={"listeners": "PLAINTEXT://[::1]:0"})
    address = broker.ready_file.read_text().strip()
    assert re.fullmatch(r"\[::1\]:\d+", address)
    listed = run_to_end("topics", "list", "--bootstrap", address)
    assert (listed.returncode, listed.stderr) == (0, "")
    with closing(KafkaAdminClient(bootstrap_servers=address)) as client:
        assert client.list_topics() == []
    assert not AdminClient({"bootstrap.servers": address}).list_topics(timeout=20).topics


def test_ready_file_of_a_stopped_broker_is_replaced_not_appended(new_broker: NEW_BROKER) -> None:
    broker = new_broker()
    first = broker.ready_file.read_text()
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n?", first)
    broker.stop()
    broker.ready_file.write_text("left over from another life")
    broker.start()
    assert broker.ready_file.read_text() == first


# Takes its standard input as the terminal of a session of its own, as a login does, and becomes the command.
AT_A_TERMINAL = "import os, sys; os.login_tty(0); os.execvp(sys.argv[1], sys.argv[1:])"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.skipif(Path(sys.prefix).name != ".venv", reason="`make run` runs the environment in .venv")
def test_ctrl_c_under_make_run(tmp_path: Path) -> None:
    """At a real terminal: Ctrl-C ends the broker in good order, and `make` with status 0."""
    data_dir = tmp_path / "data"
    terminal, its_end = os.openpty()
    process = subprocess.Popen(
        # Without `setup`: a test must not install into the environment that it, and others, run in.
        [sys.executable, "-c", AT_A_TERMINAL, "make", "-o", "setup", "run", "PORT=0", f"DATA={data_dir}"],
        cwd=ROOT,
        env=without_virtual_environment(),
        stdin=its_end,
    )
    os.close(its_end)
    try:
        read_until(terminal, b"listens on")
        os.write(terminal, b"\x03")
        read_until(terminal, b"stopped")
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(terminal)
    assert (data_dir / ".kafka_cleanshutdown").exists()


def read_until(terminal: int, words: bytes, timeout_s: float = 30) -> None:
    said, deadline = b"", time.monotonic() + timeout_s
    while words not in said:
        ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert ready, f"{words!r} did not come: {said!r}"
        said += os.read(terminal, 4096)


def without_virtual_environment() -> dict[str, str]:
    """Return the environment as a person's shell has it; a `make` above this test must not speak to the one below."""
    hidden = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VIRTUAL_ENV"}
    return {name: value for name, value in environment().items() if name not in hidden}


def test_version() -> None:
    done = run_to_end("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"tidelog \d+\.\S+\n", done.stdout)


@pytest.mark.parametrize("version", [1, 99])
def test_a_catalogue_of_another_version_is_named_and_left_as_it_is(
    new_broker: NEW_BROKER, version: int
) -> None:
    broker = new_broker()
    broker.stop()
    path = broker.data_dir / CATALOG_FILE
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    done = serve(broker.data_dir)
    assert_one_line_of_refusal(
        done,
        str(path),
        f"version of Tidelog wrote this data folder (schema {version}, this one reads ",
        "use that",
    )
    assert done.returncode == 1
    assert path.read_bytes() == before
