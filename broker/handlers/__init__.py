"""One file per API. A handler takes (session, request, version) and returns what `tidelog.broker.answers` knows.

Handlers know sessions and the state of the broker; not one another, and nothing of connections.
"""
