"""The sockets: listeners, connections, and all that is kept of what they receive and send."""
