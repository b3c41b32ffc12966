"""The one error of this room."""


class ConfigError(ValueError):
    """An invalid option; the message has its name, its value, where it was set, and what is wrong."""

    def __init__(self, option: str, problem: str, *, value: str | None = None, source: str = "") -> None:
        self.option = option
        self.problem = problem
        self.value = value
        self.source = source
        given = option if value is None else f"{option}={value}"
        if value is None and option in problem:
            super().__init__(f"{problem} ({source})" if source else problem)
        else:
            super().__init__(f"{given} ({source}): {problem}" if source else f"{given}: {problem}")

    @property
    def answer(self) -> str:
        """The message for clients, in the words that Kafka's tools and scripts search for."""
        if self.value is None:
            return self.problem
        return f"Invalid value {self.value} for configuration {self.option}: {self.problem}"
