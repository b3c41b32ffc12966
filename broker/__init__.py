"""The broker: sockets, requests, topics, and its threads."""
