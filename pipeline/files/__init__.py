"""Reading a log from its own files."""
