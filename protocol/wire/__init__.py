"""Declare a message once; derive its construct Struct, its compiled codec, its docs and its tests."""
