"""Options: one declared table, three sources, errors that say what to write instead.

Owns the names, types, bounds and defaults of everything that can be set. Knows nothing of what an option
does, and imports no other room. A configuration is immutable: changing one makes a new one.
"""
