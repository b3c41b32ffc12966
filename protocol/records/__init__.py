"""Record batches: read, validate, convert and make them. No files, no requests, no clocks."""
