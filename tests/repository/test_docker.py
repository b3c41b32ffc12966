"""The steps of the image, without Docker: what each script does, and that the files agree with one another."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.support.paths import ROOT
from tidelog.config.load import load

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
    assert len(named) >= 4
    for name in named:
        assert (ROOT / name).exists(), name
    for script in DOCKER.glob("*.sh"):
        assert os.access(script, os.X_OK), script


def test_the_build_context_holds_what_the_wheel_is_made_from() -> None:
    sent = set(re.findall(r"^!(.*)$", (DOCKER / "Dockerfile.dockerignore").read_text(), re.MULTILINE))
    rooms = {link.name for link in (ROOT / "src" / "tidelog").iterdir() if link.is_symlink()}
    assert rooms <= sent
    assert {"src", "pyproject.toml", "setup.py", "LICENSE", "README.md", "requirements", "docker"} <= sent


NOT_IN_THE_CONTEXT = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "*.so", "build", "data", "dist"
)


# Runs a command in a folder as a container engine does: as user 1000, with nothing but the files of the folder.
CONTAINER = """
for name in dev proc; do mount --rbind "/$name" "$0/$name"; done
exec unshare --user --map-user=1000 --map-group=1000 --root="$0" --wd=/ "$@"
"""
IMPORT_ALL = """
import importlib, pkgutil, tidelog
for module in pkgutil.walk_packages(tidelog.__path__, "tidelog."):
    try:
        module.name.endswith("__main__") or importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        print(error.name)
"""
SIZE_BYTES = 120_000_000


def contained(root: Path, *command: str) -> list[str]:
    return ["unshare", "--map-root-user", "--mount", "sh", "-euc", CONTAINER, str(root), *command]


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("cc") is None, reason="nothing would be compiled")
def test_the_image_is_small_and_all_that_a_broker_needs(tmp_path: Path, unused_tcp_port: int) -> None:
    """Make the files of the image by the Dockerfile's steps, and run them as the image does."""
    tree, prefix, root = tmp_path / "src", tmp_path / "opt", tmp_path / "image"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=NOT_IN_THE_CONTEXT)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "PIP_NO_COMPILE": "1"}  # bytecode would be half of the time
    wheels = tmp_path / "wheels"
    subprocess.run([tree / "docker" / "build-wheel.sh", wheels], env=environ, check=True)
    install = [tree / "docker" / "install.sh", prefix, tree / "requirements" / "run.txt", wheels]
    subprocess.run(install, env=environ, check=True)
    subprocess.run([tree / "docker" / "image.sh", root, prefix], check=True)

    found = {file: file.lstat() for file in root.rglob("*")}
    assert sum(status.st_size for status in found.values()) <= SIZE_BYTES
    # The user is another than the owner.
    hidden = [file for file, status in found.items() if not status.st_mode & stat.S_IROTH]
    assert not hidden
    assert any(file.name == "libgcc_s.so.1" for file in found)  # which libc loads to end a thread

    if subprocess.run(contained(root, "/bin/sh", "-c", ""), check=False).returncode:
        pytest.skip("this machine does not let a user change the root folder")
    data = root / "var" / "lib" / "tidelog"
    data.mkdir(parents=True)
    environ = {
        "PATH": f"{prefix / 'bin'}:/bin",
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_HTTP_PORT": str(unused_tcp_port),
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            contained(root, *command), env=environ, check=False, capture_output=True, text=True, timeout=60
        )

    dockerfile = (DOCKER / "Dockerfile").read_text()
    (healthcheck,) = re.findall(r"HEALTHCHECK .*\\\n +CMD (.*)", dockerfile)
    assert run("/bin/sh", "-c", healthcheck).returncode == 1
    missing = set(run("python", "-c", IMPORT_ALL).stdout.split())
    assert missing <= {"deltalake", "numpy", "pyarrow", "pyspark", "pytest"}

    broker = subprocess.Popen(
        contained(root, "entrypoint.sh"), env=environ, stdout=subprocess.PIPE, text=True
    )
    with broker:
        try:
            assert broker.stdout is not None
            assert "loops over bytes compiled; requests compiled" in broker.stdout.readline()
            address = (root / "tmp" / "tidelog.ready").read_text().strip()
            assert run("/bin/sh", "-c", healthcheck).returncode == 0
            with closing(KafkaProducer(bootstrap_servers=address)) as producer:
                producer.send("t", "h\u00e9llo".encode(), timestamp_ms=1_767_225_600_000).get(timeout=20)
            with closing(
                KafkaConsumer("t", bootstrap_servers=address, auto_offset_reset="earliest")
            ) as consumer:
                assert next(consumer).value.decode() == "h\u00e9llo"
            tail = run("tidelog", "tail", "t", "-b", address, "--since", "2026-01-01 01:00 Europe/Berlin")
            assert (tail.stdout.split("\t")[-1], tail.stderr) == ("h\u00e9llo\n", "")
            assert "ok       compiled: " in run("tidelog", "doctor", "-b", address).stdout
            with urlopen(f"http://127.0.0.1:{unused_tcp_port}/health", timeout=20) as health:
                assert health.status == 200
        finally:
            broker.terminate()
        assert broker.wait(timeout=20) == 0
    assert run("tidelog", "ping", "-b", address).returncode == 3
    assert run("/bin/sh", "-c", healthcheck).returncode == 1

    shutil.rmtree(data)
    data.mkdir(0o500)
    refused = run("entrypoint.sh")
    assert refused.returncode == 1
    assert "/var/lib/tidelog: cannot be used as a data folder" in refused.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "code", "says"),
    [
        ("install.sh", [], 2, "usage: docker/install.sh PREFIX LOCK WHEELS"),
        (
            "install.sh",
            ["env", "lock", "."],
            1,
            ".: has no tidelog-*.whl; make one with docker/build-wheel.sh .",
        ),
        ("build-wheel.sh", [], 2, "usage: docker/build-wheel.sh FOLDER"),
    ],
)
def test_a_script_that_lacks_something_says_so_and_makes_nothing(
    script: str, arguments: list[str], code: int, says: str, tmp_path: Path
) -> None:
    command = ["sh", str(ROOT / "docker" / script), *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, says + "\n")
    assert not list(tmp_path.iterdir())
