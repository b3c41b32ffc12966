"""One file an API. A handler takes (connection, request, version) and returns the response, or a `Later`."""
