"""The errors of the pipeline. Each message says what is wrong, where, and what to do."""


class PipelineError(Exception):
    """A request that cannot be carried out."""


class WrongOption(PipelineError):
    """An option that is not valid, or that contradicts another one."""


class DamagedLog(PipelineError):
    """Bytes of a log that differ from what was written. The message names FILE@POSITION."""
