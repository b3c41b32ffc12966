"""Reading a log from a broker, by its protocol."""
