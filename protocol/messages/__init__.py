"""Kafka's messages: one file an API, holding the dataclasses of its request and response and its `Api`."""
