"""The record kernel in both its lives: as it is installed, and interpreted from the same source.

Invariant: `INTERPRETED` never is the extension, even where one lies beside the source.
"""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from tidelog.protocol.records import kernel

SOURCE = Path(kernel.__file__).with_name("kernel.py")


def _load_source() -> ModuleType:
    name = "tests.support._interpreted_kernel"
    loader = SourceFileLoader(name, str(SOURCE))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    assert not module.COMPILED
    return module


INSTALLED = cast(Any, kernel)
INTERPRETED = cast(Any, _load_source())
# Where no compiler was at hand both are interpreted; the tests hold all the same.
BOTH = (INSTALLED, INTERPRETED)
