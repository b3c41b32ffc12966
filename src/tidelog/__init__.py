"""Tidelog: a single-node broker for Kafka clients whose log is addressed by time as exactly as by offset."""

import os
import sys

__version__ = "0.1.0"

# Before any module that may be compiled. Most checkouts have none, and need not import what looks for them.
_wanted = os.environ.get("TIDELOG_COMPILED", "")
if _wanted != "0" and (
    _wanted
    or os.path.exists(f"{__path__[0]}/_compiled")
    or os.path.exists(f"{__path__[0]}/../../build/native/{sys.implementation.cache_tag}")
):
    from tidelog import native as native
