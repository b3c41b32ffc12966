"""Log compaction: keeps the last record of each key, at its offset, and removes those that it replaced.

Owns the pass: which segments are due (`plan`), the map of keys (`key_map`), which records stay (`batch_filter`), the
copy (`copying`), and the crash-safe replacement of segments by a copy (`swap`). Knows no threads. After keyed messages
(2011), KIP-58, KIP-280, KIP-354 and KIP-534; docs/compaction.md has the guarantees.
"""
