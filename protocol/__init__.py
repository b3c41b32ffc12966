"""Bytes to meaning and back: Kafka's messages, records and frames. No sockets, no files, no clock, no threads."""
