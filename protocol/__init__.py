"""Kafka's messages, records and frames: decode and encode them. No sockets, no files, no clock, no threads."""
