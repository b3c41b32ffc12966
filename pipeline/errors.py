"""What can be wrong with what a job is asked, or reads: each says where, and what to do."""


class PipelineError(Exception):
    """Something that was asked for cannot be done."""


class WrongOption(PipelineError):
    """An option that cannot be understood, or that contradicts another one."""


class DamagedLog(PipelineError):
    """Bytes of a log are not what was written; it says file@position."""
