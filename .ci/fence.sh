#!/usr/bin/env bash
# Checks which code a signal handler can reach.
#   1. The object code of recorder/in-signal needs no symbol outside allowed-symbols.txt: no heap, no panic, no libc,
#      no __tls_get_addr.
#   2. In the linked libflightline.so, everything reachable by calls from on_signal is inside the object and in the
#      in-signal crate or an allowed symbol; indirect calls occur only in the functions listed below. The same holds for
#      the code that runs for a fatal signal, which may also use the system calls of recorder/capture.
# Usage: .ci/fence.sh [TARGET-TRIPLE]    (default: the host's)
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
target=${1:-$host}
case $target in
  aarch64*) tools=aarch64-linux-gnu- ;;
  *) tools= ;;
esac
out=target/fence
mkdir -p "$out"
allowed=$out/allowed.txt
grep -v '^#' recorder/in-signal/allowed-symbols.txt | sort >"$allowed"

# Thin LTO would put bitcode into the object.
CARGO_PROFILE_RELEASE_LTO=off cargo rustc --release --locked --quiet -p flightline-in-signal --target "$target" \
  --target-dir "$out" -- --emit=obj="$PWD/$out/in_signal.o" -Ccodegen-units=1
"${tools}nm" "$out/in_signal.o" | grep ' T .*on_signal' >/dev/null || { echo "fence: on_signal is not in the object" >&2; exit 1; }
"${tools}nm" -u "$out/in_signal.o" | awk '{ print $2 }' | sort >"$out/needed.txt"
if foreign=$(comm -13 "$allowed" "$out/needed.txt" | grep .); then
  echo "fence: the handler's object needs symbols outside allowed-symbols.txt:" >&2
  echo "$foreign" >&2
  exit 1
fi
echo "fence 1: the object of in-signal needs only: $(tr '\n' ' ' <"$out/needed.txt")"

# The musl object is linked separately (.ci/preload-musl).
case $target in *musl) exit 0 ;; esac
# The same build, in the same folder, as in consumer/cli/build.rs: this is the object that the command embeds.
CARGO_PROFILE_RELEASE_LTO=thin CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
  cargo build --release --locked --quiet -p flightline-preload --target "$target" --target-dir target/preload
so=target/preload/$target/release/libflightline.so
[ -e "$so" ] || { echo "fence: $so was not built" >&2; exit 1; }
"${tools}readelf" -dW "$so" | grep -E 'BIND_NOW|Flags:.*NOW' >/dev/null || {
  echo "fence: $so is bound lazily: its first call of memcpy would enter the loader from a handler" >&2
  exit 1
}
if "${tools}nm" -Du "$so" | grep '__tls_get_addr' >/dev/null; then
  echo "fence: $so uses __tls_get_addr" >&2
  exit 1
fi
# The call graph is read from x86_64 code.
case $target in x86_64*) ;; *) exit 0 ;; esac
objdump -d --no-show-raw-insn "$so" >"$out/so.asm"
objdump -R "$so" >"$out/slots.txt"
reachable() {
  awk -v what="$1" -v entry="$2" -v within="$3" -f .ci/reachable.awk "$allowed" "$out/slots.txt" "$out/so.asm"
}
reachable on_signal 'in_signal.*handler.*on_signal' in_signal
# The code that runs before a fatal signal's own action is next to the handlers of dispositions; it prepares
# its paths there.
for entry in last_words caught; do
  reachable "$entry" "capture.*signals.*fatal.*$entry" 'in_signal|flightline_capture|core3ffi5c_str'
done
