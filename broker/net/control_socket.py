"""A Unix socket in the data folder, with one JSON object a line in both directions.

DATA/.admin is for commands of the broker's machine (`broker.admin`), DATA/.control for a test that
controls its broker (`broker.control`). The sockets are never on a network: only the owner of the data folder can open
the files.
"""

import asyncio
import json
import os
import socket  # noqa: TID251  (here is where sockets are made)
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog.broker.commands import Commands
from tidelog.broker.control_protocol import LINE_BYTES_MAX, short_path
from tidelog.storage import files

# The most connections in a turn of the loop; others are refused at once.
BACKLOG: Final = 1024


class ControlSocket:
    """Takes commands, on several connections at once, in order on each."""

    def __init__(self, commands: Commands, folder: Path, name: str) -> None:
        """Do not listen yet; `folder` is the data folder, which this process has locked."""
        self._commands = commands
        self.path = folder / name
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Listen. Raises OSError, also if another process listens there."""
        listening = socket.socket(socket.AF_UNIX)
        try:
            with short_path(self.path) as path:
                self._remove_stale(path)
                os.fchmod(listening.fileno(), 0o600)
                listening.bind(path)
            self._server = await asyncio.start_unix_server(
                self._serve, sock=listening, limit=LINE_BYTES_MAX, backlog=BACKLOG
            )
        except OSError:
            listening.close()
            raise

    def _remove_stale(self, path: str) -> None:
        """Remove the file of a broker that was killed."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except FileNotFoundError:
                return
            except ConnectionRefusedError:
                files.remove(self.path)
                return
        raise OSError(f"{self.path}: another process listens there; end it, or name another data folder")

    async def stop(self) -> None:
        """Stop, and leave no file."""
        if self._server is None:
            return
        self._server.close()
        for writer in self._writers:
            writer.close()
        with suppress(FileNotFoundError):
            files.remove(self.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await self._line(reader):
                answer = await self._answer(line)
                if writer.is_closing():  # the broker stops
                    break
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # the client has gone
        finally:
            self._writers.discard(writer)
            writer.close()

    @staticmethod
    async def _line(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readline()
        except ValueError:  # too long: the start of the next line is unknown
            return b""

    async def _answer(self, line: bytes) -> dict[str, object]:
        try:
            command = json.loads(line)
        except (ValueError, RecursionError) as error:
            return {"ok": False, "error": f"not a JSON object in one line: {error}"}
        return await self._commands.do(command)
