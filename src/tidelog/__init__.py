"""Tidelog: a single-node broker for Kafka clients whose log is addressed by time as exactly as by offset."""

__version__ = "0.1.0"
