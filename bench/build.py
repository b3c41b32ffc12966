"""The programs in C, compiled when they are first needed and when their source changes.

librdkafka is the one that the confluent-kafka package carries: the newest release, and the same for everybody. No
header of it is needed.
"""

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import confluent_kafka

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "bench" / "clients"
FOLDER = ROOT / "build" / "bench"
FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror")


@cache
def load() -> Path:
    """Return the generator of raw requests."""
    return _compile("load.c", "load")


@cache
def echo() -> Path:
    """Return the server that does nothing but answer."""
    return _compile("echo.c", "echo")


@cache
def slow_sync() -> Path:
    """Return the library that makes fsync slow."""
    return _compile("slow_sync.c", "slow_sync.so", "-shared", "-fPIC")


@cache
def rdkafka() -> Path:
    """Return the client that is librdkafka."""
    libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    found = sorted(libraries.glob("librdkafka*.so*"))
    if not found:
        raise FileNotFoundError(
            f"{libraries}: no librdkafka; install confluent-kafka as a wheel, not from source"
        )
    return _compile("rdkafka.c", "rdkafka", "-pthread", str(found[0]), f"-Wl,-rpath,{libraries}")


def _compile(source: str, name: str, *arguments: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("the clients are written in C: apt-get install gcc libc6-dev")
    path = SOURCES / source
    digest = hashlib.sha256(path.read_bytes() + " ".join(arguments).encode()).hexdigest()[:12]
    built = FOLDER / "bin" / digest / name
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        partial = built.with_suffix(f".{os.getpid()}.partial")  # another process may compile it too
        command = [compiler, *FLAGS, str(path), "-o", str(partial), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{source} did not compile:\n{done.stderr}")
        partial.rename(built)
    return built
