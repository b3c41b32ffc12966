"""The sockets: listeners, connections, and the buffers of what they receive and send."""
