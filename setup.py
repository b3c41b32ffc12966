"""What pyproject.toml cannot say: compile the innermost loops where that can be done, and go on where not.

setuptools' `optional=True` does not forgive a compiler that is there and fails, nor one that is missing, so every
failure is caught here. What is compiled is plain Python as well: without the extensions it runs interpreted. All are
compiled, or none.
"""

from contextlib import suppress
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILED = (
    "records/batch",
    "records/kept",
    "records/kernel",
    "records/key_hashes",
    "records/keys",
    "records/search",
    "records/tally",
    "records/validate",
    "wire/layout",
    "wire/reader",
    "wire/writer",
)
EXTENSIONS = [
    Extension(
        f"tidelog.protocol.{path.replace('/', '.')}",
        [f"src/tidelog/protocol/{path}.py"],
        # Aligned, because where the linker happens to put a walk is worth a fifth of its speed.
        extra_compile_args=["-O3", "-g0", "-falign-functions=64"],
    )
    for path in COMPILED
]


class BuildKernel(build_ext):
    """Compile all, or say in one line that it will be interpreted."""

    def run(self) -> None:
        """Build in place or into build/; leave no half-built and no stale extension behind."""
        inplace = self.inplace
        try:
            from Cython.Build import cythonize

            for extension in self.extensions:
                (translated,) = cythonize(
                    extension, build_dir=self.build_temp, include_path=["src"], quiet=True
                )
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
                "tidelog: the innermost loops were not compiled and will run interpreted, slower; "
                "apt-get install gcc python3-dev, then install Tidelog again (in its folder: make setup): "
                f"{error!s:.100}"
            )


setup(ext_modules=EXTENSIONS, cmdclass={"build_ext": BuildKernel})
