"""The commands that a Unix socket in the data folder takes: their form, their arguments, their answers.

A command is an object with the command's name in `do`, and its arguments. The answer is an object, too: `ok` is true,
or false with the reason in `error`. Knows nothing of sockets and of any one command. Event loop only.
"""

import asyncio
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, ClassVar, Final, get_args, get_origin, get_type_hints

from tidelog.config.nearest import guess
from tidelog.storage.errors import StorageError

Answer = dict[str, Any]
# A method of `Commands` with this prefix is a command.
_COMMAND: Final = "_do_"


class BadCommand(Exception):
    """A refused command; the message says why, and what can be done."""


class Commands:
    """Commands, each a coroutine with typed arguments: `async def _do_name(self, argument: int) -> Answer`."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (BadCommand, StorageError)
    example: ClassVar[str] = '{"do": "advance", "ms": 1000}'

    async def do(self, command: Any) -> Answer:
        """Run a command; return an error in the answer if it is refused."""
        try:
            if not isinstance(command, dict) or not isinstance(command.get("do"), str):
                raise BadCommand(f"a command is an object such as {self.example}")
            name = command.pop("do")
            method = getattr(self, _COMMAND + name, None)
            if method is None:
                names = sorted(each.removeprefix(_COMMAND) for each in dir(self) if each.startswith(_COMMAND))
                near = guess(name, names)
                hint = f"did you mean {near!r}?" if near else f"the commands are {', '.join(names)}"
                raise BadCommand(f"there is no command {name!r}; {hint}")
            _check(name, method, command)
            return {"ok": True, **await method(**command)}
        except self.refusals as why:
            return {"ok": False, "error": str(why)}


def future_of(later: Any) -> "asyncio.Future[Any]":
    """Return a future for the response of a `Later`, or for the exception that took its place."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def ready() -> None:
        if done.done():
            return
        if isinstance(later.response, Exception):
            done.set_exception(later.response)
        else:
            done.set_result(later.response)

    later.ready = ready
    return done


def _check(name: str, method: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise BadCommand for arguments that a command does not accept."""
    kinds = get_type_hints(method)
    del kinds["return"]
    if (options := kinds.pop("options", None)) is not None:  # Unpack[a TypedDict]
        kinds |= get_type_hints(get_args(options)[0])
    for given, value in arguments.items():
        if given not in kinds:
            raise BadCommand(f"{name}: there is no argument {given!r}; it takes {', '.join(kinds) or 'none'}")
        if not any(_is_a(value, kind) for kind in get_args(kinds[given]) or (kinds[given],)):
            raise BadCommand(f"{name}: {given} cannot be {value!r}")
    for wanted, parameter in signature(method).parameters.items():
        if parameter.default is Parameter.empty and wanted in kinds and wanted not in arguments:
            raise BadCommand(f"{name}: {wanted} is missing")


def _is_a(value: Any, kind: Any) -> bool:
    """Return whether a JSON value is of a type or literal."""
    if isinstance(kind, str):
        return isinstance(value, str)  # `faults` checks which texts are valid
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else get_origin(kind) or kind)
