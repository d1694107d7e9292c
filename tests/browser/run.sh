#!/usr/bin/env bash
# Tests the HTML flame graph, the page of a trace and the page of the profiling service in Chromium. Needs node, npm and chromium; npm fetches playwright-core by name.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
for tool in node npm; do
  command -v "$tool" >/dev/null || { echo "browser tests: $tool is missing" >&2; exit 3; }
done
[ -n "$CHROMIUM" ] || { echo "browser tests: chromium is missing (set CHROMIUM)" >&2; exit 3; }
# Builds with the features that `cargo test --workspace` has, so that nothing is compiled a second time: the example selects them.
cargo build -q --manifest-path "$root/Cargo.toml" --workspace --bin flightline --bin flightline-test-programs --example otel_writer
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/browser
mkdir -p "$work"
cp "$here"/package.json "$here"/package-lock.json "$here"/*.mjs "$here"/*.py "$work"
(cd "$work" && npm ci --no-audit --no-fund --silent)
FLIGHTLINE=$target/debug/flightline
TEST_PROGRAMS=$target/debug/flightline-test-programs
FOLDED=$work/real.txt
"$FLIGHTLINE" fold "$root/fixtures/recordings/ap-java-cpu.jfr" -o "$FOLDED"
export RENDER=$root/consumer/src/render RECORDINGS=$root/fixtures/recordings SERVICE_PAGE=$root/consumer/service/src/page.rs
export FLIGHTLINE TEST_PROGRAMS FOLDED CHROMIUM
cd "$work"
exec timeout --kill-after=10 900 node --test --test-concurrency=2 --test-timeout=300000 --test-reporter=spec ${BROWSER_TESTS:-.}
