"""The log on disk. Knows batches and files; nothing of requests, sockets or clocks."""
