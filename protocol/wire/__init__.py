"""Declare a message once; derive its compiled codec, its docs and its tests."""
