"""The one thing that pyproject.toml cannot say: compile the record kernel where that can be done, and go on where not.

setuptools' `optional=True` does not forgive a compiler that is there and fails, nor one that is missing, so every
failure is caught here. The kernel is plain Python as well: without the extension it runs interpreted.
"""

from contextlib import suppress
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Aligned, because where the linker happens to put a walk is worth a fifth of its speed.
COMPILED = [
    Extension(
        f"tidelog.protocol.{name}",
        [f"src/tidelog/protocol/{name.replace('.', '/')}.py"],
        extra_compile_args=["-O3", "-g0", "-falign-functions=64"],
    )
    for name in ("records.kernel", "wire.maker", "wire.reader", "wire.writer")
]


class BuildKernel(build_ext):
    """Compile the kernel, or say in one line that it will be interpreted."""

    def run(self) -> None:
        """Build in place or into build/; leave no half-built and no stale extension behind."""
        inplace = self.inplace
        try:
            from Cython.Build import cythonize

            for extension in self.extensions:
                (translated,) = cythonize(extension, build_dir=self.build_temp, quiet=True)
                extension.sources = translated.sources
            super().run()
        except (Exception, SystemExit) as error:
            # An extension of an earlier build would be imported in place of the source that it no longer matches.
            self.inplace = inplace
            for extension in self.distribution.ext_modules:
                with suppress(OSError):
                    Path(self.get_ext_fullpath(extension.name)).unlink()
            self.extensions = []
            print(
                "tidelog: the record kernel was not compiled and will run interpreted, slower; "
                "apt-get install gcc python3-dev, then install Tidelog again (in its folder: make setup): "
                f"{error!s:.100}"
            )


setup(ext_modules=COMPILED, cmdclass={"build_ext": BuildKernel})
