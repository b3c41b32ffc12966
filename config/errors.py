"""The one error of this room."""


class ConfigError(ValueError):
    """An option that cannot be honoured; the message says which, its value, where that stood and why."""

    def __init__(self, option: str, problem: str, *, value: str | None = None, source: str = "") -> None:
        self.option = option
        self.problem = problem
        self.value = value
        self.source = source
        given = option if value is None else f"{option}={value}"
        super().__init__(f"{given} ({source}): {problem}" if source else f"{given}: {problem}")
