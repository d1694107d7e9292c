#!/usr/bin/env bash
# Builds every foreign JFR reader into target/readers. Versions are pinned in pom.xml, go/go.mod and jfrs/Cargo.lock;
# mvn, go and cargo fetch them by name. Parts whose sources did not change are left alone.
set -euo pipefail
. "$(dirname "$0")/env.sh"

# Exit code 3: a tool is missing.
need mvn "JDK Mission Control's parser and async-profiler's converter" || exit 3
need go "grafana/jfr-parser, Pyroscope's conversion and the OpenTelemetry Collector" || exit 3
need cargo "jfrs" || exit 3
jdk17=$(find_jdk 17) || exit 3
find_jdk 25 >/dev/null || exit 3

mkdir -p "$out"
exec 9>"$out/lock"
flock 9

# part NAME SOURCES… : succeeds if the part must be built; `done_with NAME` records that it was.
part() {
  local name=$1
  shift
  sum=$(cd "$readers_dir" && find "$@" -type f -not -path '*/target/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
  [ "$sum" != "$(cat "$out/$name.stamp" 2>/dev/null)" ]
}
done_with() { printf '%s\n' "$sum" >"$out/$1.stamp"; }

# A registry may fail for a moment; a wrong pin fails three times.
fetch() { "$@" || { sleep 5; "$@"; } || { sleep 20; "$@"; }; }

if part lib pom.xml; then
  rm -rf "$out/lib"
  fetch mvn -q -B -f "$readers_dir/pom.xml" dependency:copy-dependencies -DoutputDirectory="$out/lib"
  done_with lib
fi
if part classes java pom.xml; then
  rm -rf "$out/classes"
  "$jdk17/bin/javac" --release 17 -encoding UTF-8 -Xlint:all -Werror -cp "$out/lib/*" -d "$out/classes" "$readers_dir"/java/*.java
  done_with classes
fi
if part go go; then
  (cd "$readers_dir/go" && fetch go build -trimpath -o "$out/gojfr" .)
  done_with go
fi
if part pyroscope pyroscope; then
  (cd "$readers_dir/pyroscope" && fetch go build -trimpath -o "$out/pyroscope" .)
  done_with pyroscope
fi
# On no registry: set FLIGHTLINE_JAFAR to the folder with its jars.
if [ -n "${FLIGHTLINE_JAFAR:-}" ] && part jafar jafar java; then
  rm -rf "$out/jafar"
  "$(find_jdk 25)/bin/javac" -encoding UTF-8 -cp "$out/classes:$FLIGHTLINE_JAFAR/*" -d "$out/jafar" "$readers_dir"/jafar/*.java
  done_with jafar
fi
if part collector collector; then
  (cd "$readers_dir/collector" && fetch go build -trimpath -ldflags '-s -w' -o "$out/collector" .)
  done_with collector
fi
if part jfrs jfrs; then
  (cd "$readers_dir/jfrs" && fetch cargo build -q --release --locked --target-dir "$out/jfrs")
  done_with jfrs
fi
