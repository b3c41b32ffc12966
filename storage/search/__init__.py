"""Finds batches and records in a log: by offset, by time, inside a batch."""
