"""The socket in a data folder: what happens to commands while the broker stops."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import uvloop

from tidelog.broker.commands import Answer, Commands
from tidelog.broker.net.control_socket import ControlSocket


class _Slow(Commands):
    """A command that is done when the test says so."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def _do_wait(self) -> Answer:
        self.begun.set()
        await self.may_end.wait()
        return {}


def test_a_stop_closes_the_connection_of_a_command_without_an_error(tmp_path: Path) -> None:
    errors: list[dict[str, Any]] = []

    async def check() -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        commands = _Slow()
        served = ControlSocket(commands, tmp_path, ".control")
        await served.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(served.path))
            client.sendall(b'{"do": "wait"}\n')
            await commands.begun.wait()
            await served.stop()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            commands.may_end.set()
            await asyncio.wait(others)
            await asyncio.sleep(0)
            return client.recv(100)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(check()) == b""
    assert errors == []
