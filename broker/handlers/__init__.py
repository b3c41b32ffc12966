"""One file per API. A handler takes (session, request, version) and returns a form of `tidelog.broker.answers`.

Handlers use sessions and the state of the broker. They do not know each other or connections.
"""
