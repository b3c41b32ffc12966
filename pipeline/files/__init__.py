"""Reading a log from its files."""
