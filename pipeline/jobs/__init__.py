"""The jobs, one file each: `run` takes what was asked, and returns the exit code."""
