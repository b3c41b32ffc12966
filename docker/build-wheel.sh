#!/bin/sh
# Builds the wheel of the tree around this script:  docker/build-wheel.sh FOLDER
# With the locked build tools, and the kernel compiled where there is a C compiler.
set -eu
folder=$1
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
"$tools/bin/python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$folder" .
