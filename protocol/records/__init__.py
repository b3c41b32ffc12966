"""Record batches: what is in them, whether they may be stored, and how to make one.

Owns a batch's bytes from its first offset to its last record. Knows nothing of files, requests or clocks.
"""
