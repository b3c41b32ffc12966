"""CRC-32C, from the package `crc32c`."""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING


def _implementation() -> ModuleType:
    """Return the compiled module of the package, without the package where that is possible.

    The package imports its command line and reads its version from its metadata. For that it loads 50 modules, which
    took a seventh of the start of a broker.
    """
    package = PathFinder.find_spec("crc32c")
    folders = package and package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", folders) if folders else None
    if spec is None or spec.loader is None:
        import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    crc32c = _implementation().crc32c
