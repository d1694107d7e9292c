#!/usr/bin/env bash
# Runs foreign readers on a JFR file. Build first: tests/readers/build.sh
#
#   run.sh FILE                     a table: reader, status, samples, unresolved references, digests
#   run.sh --compare FILE…          the same, and fails unless every reader sees the same samples, event for event
#   run.sh --lines READER FILE      one canonical line per jdk.ExecutionSample (see java/Canonical.java)
#   run.sh --collapsed READER FILE  thread;root;…;leaf and count, sorted
#   run.sh --fields TYPE FILE       all values of the events of a type, as JMC reads them: number of the event, field, value
#   run.sh --types FILE             events per type, as the newest JDK counts them
#   run.sh --each READER OUT FILE…  every sample of each file with its weight, in OUT/0, OUT/1, …; what went wrong in OUT/0.error, …
#   run.sh --follow READER file|repository PATH SECONDS   a live EventStream (jdk17 or jdk25)
#
# READERS="jdk17 go" restricts the readers. Known and allowed differences are in README.md and nowhere else.
set -euo pipefail
. "$(dirname "$0")/env.sh"
all="jdk17 jdk25 jmc converter go jfrs"
readers=${READERS:-$all}
export LC_ALL=C

java_of() {
  case $1 in
    jdk25) printf '%s/bin/java\n' "$(find_jdk 25)" ;;
    *) printf '%s/bin/java\n' "$(find_jdk 17)" ;;
  esac
}

run_java() {
  local reader=$1 java
  shift
  java=$(java_of "$reader")
  # For short runs at the same time as other work, the serial collector and the C1 compiler are the cheapest.
  "$java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx2g -cp "$out/classes:$out/lib/*" "$@"
}

lines() {
  case $1 in
    jdk17 | jdk25) run_java "$1" JdkFile "$2" ;;
    jdk25-bare) run_java jdk25 JdkFile --bare-native "$2" ;;
    jdk25-fold) run_java jdk25 JdkFile --fold "$2" ;;
    jdk25-merged) run_java jdk25 JdkFile --merged "$2" ;;
    jmc) run_java "$1" Jmc "$2" ;;
    converter) run_java "$1" Converter "$2" ;;
    go) "$out/gojfr" "$2" ;;
    jfrs) "$out/jfrs/release/jfrs-lines" "$2" ;;
    *) printf 'readers: no reader %s; there are: %s\n' "$1" "$all" >&2; return 2 ;;
  esac
}

# One process for all files, because some readers are slow to start. More readers than `lines` has: live ones
# on finished files, and conversions.
each() {
  local reader=$1 to=$2 i=0 file
  shift 2
  case $reader in
    jdk17 | jdk25) run_java "$reader" Many "$to" JdkFile --weights -- "$@" ;;
    stream17 | stream25) run_java "jdk${reader#stream}" Many "$to" JdkEvents -- "$@" ;;
    jmc) run_java jmc Many "$to" Jmc --weights -- "$@" ;;
    converter) run_java converter Many "$to" Converter --weights -- "$@" ;;
    jafar)
      "$(find_jdk 25)/bin/java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$out/jafar:$out/classes:${FLIGHTLINE_JAFAR:?}/*" \
        Many "$to" Jafar -- "$@"
      ;;
    go | jfrs | pyroscope)
      local -A command=([go]="$out/gojfr weights" [jfrs]="$out/jfrs/release/jfrs-lines weights" [pyroscope]="$out/pyroscope")
      for file in "$@"; do
        ${command[$reader]} "$file" >"$to/$i" 2>"$to/$i.error" && rm "$to/$i.error"
        i=$((i + 1))
      done
      return 0
      ;;
    *) printf 'readers: no reader %s\n' "$reader" >&2; return 2 ;;
  esac
}

# Canonical lines to folded stacks: frames turned root first under their thread.
fold() {
  awk -F'\t' '{ n = split($5, f, ";"); s = $2; for (i = n; i > 0; i--) s = s ";" f[i]; count[s]++ }
              END { for (s in count) print s " " count[s] }' | sort
}

# The converter's own command line names native frames by method only, tags the others with their kind and threads with a tid.
converter_collapsed() {
  local java
  java=$(java_of converter)
  # --cpu selects only STATE_DEFAULT, the state of CPU samples; recordings of a JVM have no such state.
  "$java" -jar "$out"/lib/jfr-converter-*.jar -o collapsed $3 --threads --dot "$1" "$2" >&2
}
plain_converter() {
  # Without the ids, threads with the same name are one line.
  sed -E 's/^\[([^;]*) tid=[0-9]+\];/\1;/; s/_\[.\](;| [0-9]+$)/\1/g' |
    awk '{ n = $NF; sub(/ [0-9]+$/, ""); count[$0] += n } END { for (s in count) print s " " count[s] }' | sort
}

digest() { sha256sum | cut -c1-12; }

table() {
  local file=$1 work=$2 reader status n unresolved
  printf '%-14s %-6s %9s %10s  %-12s  %s\n' reader status samples unresolved lines collapsed
  for reader in $readers; do
    status=ok
    lines "$reader" "$file" >"$work/raw" 2>"$work/$reader.err" || status=FAILED
    sort "$work/raw" >"$work/$reader.lines"
    cut -f1,2,4,5 "$work/$reader.lines" | sort >"$work/$reader.no-id"
    fold <"$work/$reader.lines" >"$work/$reader.collapsed"
    n=$(wc -l <"$work/$reader.lines")
    unresolved=$(grep -cE '(^|[	;])\?($|[	;.])|\.\?($|;)' "$work/$reader.lines" || true)
    printf '%-14s %-6s %9s %10s  %-12s  %s\n' "$reader" $status "$n" "$unresolved" \
      "$(digest <"$work/$reader.no-id")" "$(digest <"$work/$reader.collapsed")"
    printf '%s\n' "$status" >"$work/$reader.status"
    if [ $status != ok ]; then sed 's/^/    /' "$work/$reader.err" | head -5; fi
  done
}

fail() {
  printf 'DIFFERS: %s\n' "$1"
  failed=1
}

compare() {
  local file=$1 work=$2 reader first="" merged version count only
  table "$file" "$work"
  merged=$(run_java jdk25 JdkFile --types "$file" 2>/dev/null | grep -cE '^(jdk.NativeMethodSample|profiler.WallClockSample)	' || true)
  for reader in $readers; do
    if [ "$(cat "$work/$reader.status")" != ok ]; then
      fail "$reader cannot read $file"
      continue
    fi
    if [ "$reader" = converter ] && [ "$merged" != 0 ]; then
      printf 'converter: compared with all three kinds of samples, which it does not tell apart\n'
      lines jdk25-merged "$file" | cut -f1,2,4,5 | sort >"$work/merged"
      cmp -s "$work/merged" "$work/converter.no-id" || fail "jdk25 and converter on $file"
      continue
    fi
    if [ -z "$first" ]; then
      first=$reader
      continue
    fi
    if ! cmp -s "$work/$first.no-id" "$work/$reader.no-id"; then
      fail "$first and $reader on $file"
      diff "$work/$first.no-id" "$work/$reader.no-id" | cut -c1-200 | head -4 || true
    fi
    cmp -s "$work/$first.collapsed" "$work/$reader.collapsed" || fail "folded stacks of $first and $reader on $file"
    # Thread ids: only some readers have them.
    if [ "$(cut -f3 "$work/$first.lines" | head -1)" != - ] && [ "$(cut -f3 "$work/$reader.lines" | head -1)" != - ]; then
      cmp -s "$work/$first.lines" "$work/$reader.lines" || fail "thread ids of $first and $reader on $file"
    fi
  done
  if [ "$merged" = 0 ] && [[ " $readers " == *" converter "* ]]; then
    lines jdk25-bare "$file" | fold >"$work/bare.collapsed"
    only=$(cut -f4 "$work/converter.lines" | grep -qx STATE_DEFAULT && printf %s --cpu || true)
    converter_collapsed "$file" "$work/cli.raw" "$only" 2>"$work/cli.err" || fail "jfrconv fails on $file: $(tail -1 "$work/cli.err")"
    plain_converter <"$work/cli.raw" >"$work/cli.collapsed"
    printf '%-14s %-6s %9s\n' converter-cli ok "$(awk '{ n += $NF } END { print n + 0 }' "$work/cli.collapsed")"
    if ! cmp -s "$work/bare.collapsed" "$work/cli.collapsed"; then
      fail "jdk25 and the converter's command line on $file"
      diff "$work/bare.collapsed" "$work/cli.collapsed" | cut -c1-200 | head -4 || true
    fi
  fi
  for version in 17 25; do
    [[ " $readers " == *" jdk$version "* ]] || continue
    count=$("$(find_jdk $version)/bin/jfr" -J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 summary "$file" | awk '$1 == "jdk.ExecutionSample" { print $2 }')
    printf '%-14s %-6s %9s\n' "jfr$version-summary" ok "${count:-0}"
    [ "${count:-0}" = "$(wc -l <"$work/jdk$version.lines")" ] || fail "jfr $version summary on $file"
  done
}

built() {
  [ -e "$out/jfrs.stamp" ] || { printf 'readers: not built; run tests/readers/build.sh first\n' >&2; exit 3; }
}

case ${1:-} in
  --lines) built; lines "$2" "$3" ;;
  --each) built; each "${@:2}" ;;
  --collapsed) built; lines "$2" "$3" | fold ;;
  --fields) built; run_java jmc JmcFields "$2" "$3" ;;
  --types) built; run_java jdk25 JdkFile --types "$2" ;;
  --follow) built; run_java "$2" JdkStream "--$3" "$4" "$5" ;;
  --compare)
    built
    shift
    failed=0
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    for file in "$@"; do
      printf '== %s\n' "$file"
      compare "$file" "$work"
    done
    exit $failed
    ;;
  "" | -*) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
  *)
    built
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    table "$1" "$work"
    ;;
esac
