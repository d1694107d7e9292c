#!/usr/bin/env bash
# Measures how long a sample interrupts a thread, compared with a perf event with an empty handler: bench/interruption.sh [ROUNDS]
# x86_64 only. Needs `cargo build --release` and perf rights.
set -euo pipefail
cd "$(dirname "$0")/.."
out=target/bench
mkdir -p "$out"
gcc -O2 -o "$out/gap" bench/gap.c
gcc -O2 -shared -fPIC -o "$out/bare_sigtrap.so" bench/bare_sigtrap.c
for _ in $(seq "${1:-3}"); do
  printf 'alone                      '; "$out/gap" 3
  printf 'empty handler, perf 1 kHz  '; LD_PRELOAD=$PWD/$out/bare_sigtrap.so "$out/gap" 3
  printf 'flightline, perf 1 kHz     '; target/release/flightline record -q -e perf -F 1000 -o "$out/gap.jfr" -- "$out/gap" 3
  printf 'flightline, timer 100 Hz   '; target/release/flightline record -q -e timer -F 100 -o "$out/gap.jfr" -- "$out/gap" 3
done
