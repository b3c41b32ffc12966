"""Log compaction: of each key the last record stays, at its offset, and what it has replaced goes.

Owns the pass: which segments are due (`plan`), the map of keys (`key_map`), what of a batch stays (`batch_filter`), the
copy (`copying`), and how a copy takes the place of what it was made of, whatever a crash comes upon (`swap`). Knows no
threads. From keyed messages (2011), KIP-58, KIP-280, KIP-354 and KIP-534; docs/compaction.md says what is promised.
"""
