"""The declaration of an option, the check of its value, and its description for DescribeConfigs.

The options are declared in `options`, `group_options`, `topic_options` and `inert`. A value from `Option.read` is
within its bounds and choices, so its users need not check again.
"""

import dataclasses
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tidelog.config import machine
from tidelog.config.errors import ConfigError
from tidelog.config.kinds import Kind

T = TypeVar("T")


class Option(NamedTuple):
    """An option: a row of the table."""

    name: str
    kind: Kind[Any]
    default: Any
    doc: str
    broker: str = ""  # the broker's name of a topic option
    # other names -> the factor of their unit
    aliases: Mapping[str, int] = MappingProxyType({})
    at_least: int | None = None
    at_most: int | None = None
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False  # for a list with choices
    because: str = ""  # the reason for narrow bounds or choices
    memory_share: int = 0  # 4: at most a fourth of the machine's memory
    ours: bool = False  # not an option of Kafka
    live: bool = False  # an option of the broker that can change while it runs
    why_inert: str = ""  # why it has no effect, if it has none
    attribute: str = ""  # the field that has its value; empty if it has no effect

    def read(self, text: str, *, source: str = "", given: str = "", unit: int = 1) -> Any:
        """Return the value of a text; ConfigError names `given`, the spelling that was used."""
        text = text.strip()
        given = given or self.name
        try:
            value = self.kind.parse(text)
            if unit != 1:
                # Kafka takes any negative number of hours as no limit.
                value = value * unit if value >= 0 else -1
            self._check(value, unit)
        except ValueError as error:
            raise ConfigError(given, str(error), value=text, source=source) from None
        return value

    @property
    def is_dynamic(self) -> bool:
        """Whether the broker's value can change while it runs: defaults of topics can, and `live` options."""
        return bool(self.broker) or self.live

    def text(self, value: Any) -> str:
        """Return a value as text, as in DescribeConfigs and server.properties."""
        return self.kind.text(value)

    @property
    def default_text(self) -> str | None:
        """The default as text; None if there is none."""
        return None if self.default is None else self.text(self.default)

    def range(self) -> str:
        """Return the accepted values in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.at_least is not None and self.at_least == self.at_most:
            return str(self.at_least)
        memory = f"1/{self.memory_share} of the machine's memory" if self.memory_share else None
        bounds = (("at least", self.at_least), ("at most", self.at_most), ("at most", memory))
        return ", ".join(f"{side} {bound}" for side, bound in bounds if bound is not None)

    def _check(self, value: Any, unit: int) -> None:
        why = f" ({self.because})" if self.because else ""
        if self.choices:
            chosen = value if isinstance(value, tuple) else (self.kind.text(value),)
            wrong = [item for item in chosen if item not in self.choices]
            if wrong or not (chosen or self.may_be_empty):
                what = "Value" if self.kind.lowest is not None else "String"
                raise ValueError(f"{what} must be one of: {', '.join(self.choices)}{why}")
        low = self.kind.lowest if self.at_least is None else self.at_least
        high = self.kind.highest if self.at_most is None else self.at_most
        if low is not None and value < low:
            raise ValueError(f"Value must be at least {low // unit}{why}")
        if high is not None and value > high:
            raise ValueError(f"Value must be no more than {high // unit}{why}")
        if self.memory_share and value > (
            most := max(machine.memory_bytes() // self.memory_share, self.default)
        ):
            raise ValueError(
                f"Value must be no more than {most}, 1/{self.memory_share} of this machine's memory"
            )


def option(name: str, kind: Kind[T], default: T, **row: Any) -> T:
    """Declare a dataclass field that is an option; `row` has fields of `Option`.

    The return type is that of the value, as mypy takes it for the field's default.
    """
    declared = Option(name, kind, default, **row)
    field: Any = dataclasses.field(default=default, metadata={"option": declared})
    return field  # type: ignore[no-any-return]


def options_of(table: type[Any]) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in the order of declaration."""
    return tuple(
        field.metadata["option"]._replace(attribute=field.name)
        for field in dataclasses.fields(table)
        if "option" in field.metadata
    )


class Source(IntEnum):
    """The source of a value, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2  # set for this broker while it ran
    DYNAMIC_DEFAULT = 3  # set for all brokers while they ran
    BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A setting that applies if the earlier ones are not set."""

    name: str
    text: str | None  # None: no value
    source: Source


class Described(NamedTuple):
    """An option in a configuration, as DescribeConfigs shows it; the first synonym is in effect."""

    name: str
    text: str | None
    kind: Kind[Any]
    doc: str
    source: Source
    synonyms: tuple[Synonym, ...]
    is_read_only: bool = False  # a change needs a restart
