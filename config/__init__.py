"""Options: their declarations, the sources of their values, and errors that say what to write instead.

This room has the names, types, bounds and defaults of all options, but not what they do, and imports no other room. A
configuration is immutable: a change makes a new one.
"""
