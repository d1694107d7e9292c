#!/usr/bin/env bash
# Builds the reader with any JDK from 11 on, nothing else needed: consumer/java/build.sh [tests]
# target/java/flightline-reader.jar; with `tests` the examples' and tests' classes in target/java/tests too.
set -euo pipefail
cd "$(dirname "$0")"
out=${CARGO_TARGET_DIR:-../../target}/java
bin=${JAVA_HOME:+$JAVA_HOME/bin/}
flags=(--release 11 -encoding UTF-8 -Xlint:all -Werror)

mkdir -p "$out"
exec 9>"$out/lock"
flock 9
rm -rf "$out/classes" "$out/tests"
"${bin}javac" "${flags[@]}" -d "$out/classes" src/dev/flightline/reader/*.java
"${bin}jar" --create --file "$out/flightline-reader.jar.new" --date=2026-01-01T00:00:00Z -C "$out/classes" . 2>/dev/null ||
  "${bin}jar" --create --file "$out/flightline-reader.jar.new" -C "$out/classes" .
mv "$out/flightline-reader.jar.new" "$out/flightline-reader.jar"
if [ "${1:-}" = tests ]; then
  "${bin}javac" "${flags[@]}" -cp "$out/classes" -d "$out/tests" examples/*.java test/dev/flightline/reader/*.java
fi
