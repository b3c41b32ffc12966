"""The steps of the image, without Docker: what each script does, and that the files agree with one another."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tidelog.config.load import load
from tidelog.protocol.registry import APIS

DOCKER = ROOT / "docker"

# Stands for `tidelog` and shows how it was called.
SHOW = '#!/bin/sh\nprintf "%s\\n" "$@"\nenv | grep ^KAFKA_ | sort\n'


@pytest.fixture
def entrypoint(tmp_path: Path) -> Callable[..., list[str]]:
    """Run the entrypoint with a `tidelog` that prints its arguments and options, a line each."""
    fake = tmp_path / "bin" / "tidelog"
    fake.parent.mkdir()
    fake.write_text(SHOW)
    fake.chmod(0o755)

    def run(*arguments: str, **environ: str) -> list[str]:
        paths = {
            "PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}",
            "TIDELOG_CONFIG": str(tmp_path / "server.properties"),
            "TIDELOG_READY_FILE": str(tmp_path / "ready"),
        }
        command = [str(DOCKER / "entrypoint.sh"), *arguments]
        return subprocess.run(
            command, env={**paths, **environ}, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    return run


def test_without_options_clients_on_the_host_are_served(
    entrypoint: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "ready").write_text("left by the last run")
    assert entrypoint("--log-level", "debug") == [
        "serve", "--ready-file", str(tmp_path / "ready"), "--log-level", "debug",
        "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092",
        "KAFKA_LISTENERS=PLAINTEXT://:9092",
        "KAFKA_LOG_DIR=/var/lib/tidelog",
    ]  # fmt: skip
    assert not (tmp_path / "ready").exists()


def test_variables_of_the_container_are_left_as_they_are(entrypoint: Callable[..., list[str]]) -> None:
    lines = entrypoint(KAFKA_LISTENERS="A://:1", KAFKA_LOG_DIRS="/d", KAFKA_NUM_PARTITIONS="3")
    assert lines[3:] == ["KAFKA_LISTENERS=A://:1", "KAFKA_LOG_DIRS=/d", "KAFKA_NUM_PARTITIONS=3"]


def test_an_advertised_name_alone_is_kept(entrypoint: Callable[..., list[str]]) -> None:
    lines = entrypoint(KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://broker:9092")
    assert lines[3:5] == [
        "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://broker:9092",
        "KAFKA_LISTENERS=PLAINTEXT://:9092",
    ]


def test_a_mounted_file_takes_the_place_of_the_defaults(
    entrypoint: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "server.properties").touch()
    lines = entrypoint(KAFKA_NODE_ID="2")
    assert lines == [
        "serve", "--ready-file", str(tmp_path / "ready"), "--config-file", str(tmp_path / "server.properties"),
        "KAFKA_NODE_ID=2",
    ]  # fmt: skip


def answer_once(listener: socket.socket, answer: bytes, asked: list[bytes]) -> None:
    connection, _ = listener.accept()
    with connection:
        asked.append(connection.recv(100))
        connection.sendall(answer)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def healthcheck(ready: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-IS", str(DOCKER / "healthcheck.py")]
    return subprocess.run(
        command,
        env={"TIDELOG_READY_FILE": str(ready)},
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("0000000a0000746900000000", ""),
        ("0000000a0000746900230000", "error 35"),
        ("0000000a0000000100000000", "correlation id 1"),
        ("0000", "closed before an answer"),
    ],
)
def test_the_healthcheck_believes_only_an_answer_to_its_question(
    listener: socket.socket, tmp_path: Path, answer: str, problem: str
) -> None:
    ready = tmp_path / "ready"
    ready.write_text(f"0.0.0.0:{listener.getsockname()[1]}\n")
    asked: list[bytes] = []
    broker = threading.Thread(target=answer_once, args=(listener, bytes.fromhex(answer), asked))
    broker.start()
    result = healthcheck(ready)
    broker.join()
    assert result.returncode == bool(problem)
    assert problem in result.stderr
    assert asked == [bytes.fromhex("0000000a 0012 0000 00007469 ffff")]
    assert APIS[18].min_version == 0


def test_the_healthcheck_fails_while_nothing_is_ready(tmp_path: Path, listener: socket.socket) -> None:
    missing = healthcheck(tmp_path / "none")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    port = listener.getsockname()[1]
    listener.close()
    (tmp_path / "ready").write_text(f"127.0.0.1:{port}")
    assert "unhealthy: " in healthcheck(tmp_path / "ready").stderr


def test_the_compose_file_is_a_configuration() -> None:
    lines = (DOCKER / "compose.yaml").read_text().splitlines()
    environ = dict(match.groups() for line in lines if (match := re.match(r' +(KAFKA_\w+): "?([^"]*)', line)))
    config = load(environ=environ)
    assert config.advertised("HOST", "172.17.0.2", 9092) == ("localhost", 9092)
    assert config.advertised("CONTAINERS", "172.17.0.2", 19092) == ("tidelog", 19092)
    assert config.notes == ()


def test_the_dockerfile_names_files_that_are_there() -> None:
    dockerfile = (DOCKER / "Dockerfile").read_text()
    named = set(re.findall(r"(?:docker|requirements)/[\w.-]+", dockerfile)) - {"docker/Dockerfile"}
    assert len(named) >= 5
    for name in named:
        assert (ROOT / name).exists(), name
    for script in (*DOCKER.glob("*.sh"), DOCKER / "healthcheck.py"):
        assert os.access(script, os.X_OK), script


def test_the_build_context_holds_what_the_wheel_is_made_from() -> None:
    sent = set(re.findall(r"^!(.*)$", (DOCKER / "Dockerfile.dockerignore").read_text(), re.MULTILINE))
    rooms = {link.name for link in (ROOT / "src" / "tidelog").iterdir() if link.is_symlink()}
    assert rooms <= sent
    assert {"src", "pyproject.toml", "setup.py", "LICENSE", "README.md", "requirements", "docker"} <= sent


NOT_IN_THE_CONTEXT = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "*.so", "build", "data", "dist"
)


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("cc") is None, reason="nothing would be compiled")
def test_the_image_is_built_and_serves(tmp_path: Path) -> None:
    """Build the wheel, install it as the image does, start it by the entrypoint, ask it, stop it."""
    tree, prefix = tmp_path / "src", tmp_path / "opt"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=NOT_IN_THE_CONTEXT)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "PIP_NO_COMPILE": "1"}  # bytecode would be half of the time
    wheels = tmp_path / "wheels"
    subprocess.run([tree / "docker" / "build-wheel.sh", wheels], env=environ, check=True)
    install = [tree / "docker" / "install.sh", prefix, tree / "requirements" / "run.txt", wheels]
    subprocess.run(install, env=environ, check=True)
    shutil.rmtree(tree)

    ready = tmp_path / "ready"
    environ = {
        "PATH": f"{prefix / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "TIDELOG_CONFIG": "/nonexistent",
        "TIDELOG_READY_FILE": str(ready),
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "KAFKA_PROCESS_ROLES": "broker,controller",
    }
    broker = subprocess.Popen(
        [DOCKER / "entrypoint.sh"], env=environ, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    with broker:
        try:
            assert broker.stdout is not None
            said = broker.stdout.readline()
            assert "kernel compiled; requests compiled" in said
            while not ready.exists():
                assert broker.poll() is None
            assert healthcheck(ready).returncode == 0
        finally:
            broker.terminate()
        assert broker.wait(timeout=20) == 0
