"""The jobs, one file each: `run` takes the flags and returns the exit code."""
