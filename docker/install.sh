#!/bin/sh
# Installs the wheel and what it needs into an environment of their own:  docker/install.sh PREFIX LOCK WHEELS
# The lock brings every dependency with its hash; nothing is resolved here. PYTHON names another than python3.
set -eu
[ $# = 3 ] || { echo "usage: docker/install.sh PREFIX LOCK WHEELS" >&2; exit 2; }
prefix=$1 lock=$2 wheels=$3
set -- "$wheels"/tidelog-*.whl
[ -f "$1" ] || { echo "$wheels: has no tidelog-*.whl; make one with docker/build-wheel.sh $wheels" >&2; exit 1; }
[ -f "$lock" ] || { echo "$lock: there is no such file; LOCK is requirements/run.txt of the sources" >&2; exit 1; }
"${PYTHON:-python3}" -m venv "$prefix"
pip() { "$prefix/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install --require-hashes -r "$lock"
pip install --no-deps "$@"
pip check
"$prefix/bin/tidelog" version --verbose # which fails where nothing can run
pip uninstall --yes pip
"$prefix/bin/python" - << 'END'
import pathlib, sys

python = pathlib.Path(sys.base_prefix).resolve()
closed = [str(folder) for folder in (python, *python.parents) if not folder.stat().st_mode & 0o001]
if closed:
    print(f"Other users cannot run this Python: {closed[-1]} is closed to them. For a service, use another:", file=sys.stderr)
    print("PYTHON=/usr/bin/python3 docker/install.sh ...", file=sys.stderr)
END
