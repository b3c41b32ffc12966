"""Kafka's messages: one file for each API, holding the dataclasses of its request and response and its `Api`."""
