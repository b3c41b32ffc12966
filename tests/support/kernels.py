"""The record kernel, its searches and what compacts, in both their lives: as installed, and interpreted from the same
source.

Invariant: `INTERPRETED` never is the extension, even where one lies beside the source.
"""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from tidelog.protocol.records import kept, kernel, key_hashes, keys, search


def load_source(installed: ModuleType) -> ModuleType:
    """Load a module once more, from its source."""
    assert installed.__file__ is not None
    short = installed.__name__.rpartition(".")[2]
    source = Path(installed.__file__).with_name(f"{short}.py")
    name = f"tests.support._interpreted_{short}"
    loader = SourceFileLoader(name, str(source))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    # What another calls as C, Python cannot call: it is to find what is interpreted.
    called = {key_hashes: (), keys: (key_hashes,)}.get(installed, (key_hashes, keys))
    others = {each.__name__: load_source(each) for each in called}
    with patch.dict(sys.modules, others):
        loader.exec_module(module)
    assert not getattr(module, "COMPILED", False)
    return module


def _together(*modules: ModuleType) -> SimpleNamespace:
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


INSTALLED = cast(Any, _together(kernel, search, keys, kept))
INTERPRETED = cast(Any, _together(*map(load_source, (kernel, search, keys, kept))))
# Where no compiler was at hand both are interpreted; the tests hold all the same.
BOTH = (INSTALLED, INTERPRETED)
