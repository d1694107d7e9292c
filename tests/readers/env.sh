# Sourced by build.sh and run.sh: finds the tools, and prints those that are missing.
readers_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$readers_dir/../.." && pwd)
out=${CARGO_TARGET_DIR:-$top/target}/readers

# find_jdk 17: the home of a JDK of that feature release: $JAVA17_HOME, $JAVA_HOME, then the folders of
# distributions.
find_jdk() {
  local named="JAVA$1_HOME" home
  for home in "${!named:-}" "${JAVA_HOME:-}" /usr/lib/jvm/* "$HOME"/.sdkman/candidates/java/*; do
    if [ -x "$home/bin/java" ] && grep -qs "^JAVA_VERSION=\"$1[.\"]" "$home/release"; then
      printf '%s\n' "$home"
      return 0
    fi
  done
  printf 'readers: no JDK %s found; install one or set JAVA%s_HOME\n' "$1" "$1" >&2
  return 1
}

need() {
  command -v "$1" >/dev/null && return 0
  printf 'readers: %s is not installed; %s needs it\n' "$1" "$2" >&2
  return 1
}
