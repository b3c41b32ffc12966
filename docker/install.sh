#!/bin/sh
# Installs the wheel and what it needs into an environment of their own:  docker/install.sh PREFIX LOCK WHEELS
# The lock brings every dependency with its hash; nothing is resolved here. PYTHON names another than python3.
set -eu
prefix=$1 lock=$2 wheels=$3
"${PYTHON:-python3}" -m venv "$prefix"
pip() { "$prefix/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install --require-hashes -r "$lock"
pip install --no-deps "$wheels"/tidelog-*.whl
pip check
"$prefix/bin/tidelog" version --verbose # which fails where nothing can run
pip uninstall --yes pip
