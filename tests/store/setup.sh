#!/usr/bin/env bash
# Installs the engines that conformance.py compares with ours, and a parser of other engines' SQL, from PyPI,
# in target/store-engines. Spark needs a JDK of 17 or newer.
set -euo pipefail
cd "$(dirname "$0")/../.."
place=target/store-engines
[ -x "$place/bin/python" ] || python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check 'duckdb>=1.4' 'pyspark>=4,<5' 'sqlglot>=27'
"$place/bin/pip" freeze --disable-pip-version-check | grep -iE '^(duckdb|pyspark|sqlglot)='
