# Call graph of an x86_64 disassembly: everything reachable from one function.
# Input files: allowed symbols, objdump -R, objdump -d --no-show-raw-insn (in this order); variables: what, how the
# function is called; entry, a pattern for its symbol; within, a pattern for the symbols that it may reach.
#
# Edges: calls and jumps to named targets, and every mention of a GOT slot or of a function's address (so a call
# through a register that was loaded from a slot is covered). Fails on an edge that leaves these for
# anything not allowed, on unresolved slots, and on a call through a register in a function that mentions no slot, unless
# it is one of the two that call a pointer on purpose: the vDSO's clock, glibc's _dl_find_object. A jump
# through a register is a switch table if a table load (movslq) precedes it closely.

function fail(text) { print "fence: " text > "/dev/stderr"; bad = 1 }
function hex(text,   i, n) {
  n = 0; text = tolower(text); sub(/^0x/, "", text)
  for (i = 1; i <= length(text); i++) n = n * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
  return n
}
function edge(to) { if (to != name) edges[name] = edges[name] "\n" to }

FILENAME == ARGV[1] { allowed[$1] = 1; next }
FILENAME == ARGV[2] {
  if ($2 == "R_X86_64_RELATIVE") { sub(/^\*ABS\*\+/, "", $3); inside[hex($1)] = hex($3) }
  else if ($2 ~ /GLOB_DAT|JUMP_SLO/) { sub(/@.*/, "", $3); outside[hex($1)] = $3 }
  else if ($2 ~ /TPOFF/) tls[hex($1)] = 1
  next
}

# "0000000000012340 <name>:"
/^[0-9a-f]+ <.*>:$/ {
  name = $2; sub(/^</, "", name); sub(/>:$/, "", name)
  at = hex($1); start[at] = name; functions++
  if (name ~ entry) root = name
  table = 0
  next
}
name == "" { next }
{
  op = $2
  if (op == "movslq") table = NR
  if (match($0, /# [0-9a-f]+ </)) {
    to = hex(substr($0, RSTART + 2, RLENGTH - 4))
    # Loads from a slot and addresses of functions; plain data is neither.
    mentions[name] = mentions[name] "\n" to (op ~ /^(call|jmp)$/ ? "!" : "")
    next
  }
  if (op ~ /^(call|j[a-z]+)$/) {
    if (match($0, /<[^>]*>/)) {
      to = substr($0, RSTART + 1, RLENGTH - 2); sub(/[+-]0x[0-9a-f]+$/, "", to)
      edge(to)
    } else if (op == "call") {
      calls[name] = calls[name] " " $3
    } else if (NR - table > 8) {
      fail_jump[name] = $0
    }
  }
}
END {
  if (root == "") { fail(what " is not in the disassembly"); exit 1 }
  todo[1] = root; seen[root] = 1; n = 1
  for (i = 1; i <= n; i++) {
    f = todo[i]
    registers = calls[f]; slots = 0
    k = split(mentions[f], list, "\n")
    for (j = 1; j <= k; j++) {
      if (list[j] == "") continue
      to = list[j]; called = sub(/!$/, "", to); to += 0
      if ((to in outside) || (to in inside)) slots++
      if (to in outside) edges[f] = edges[f] "\n" outside[to] "@plt"
      else if ((to in inside) && (inside[to] in start)) edges[f] = edges[f] "\n" start[inside[to]]
      else if (to in start) edges[f] = edges[f] "\n" start[to]
      else if (called) fail("call through an unknown slot in " f)
    }
    if (f in fail_jump) fail("indirect jump in " f ": " fail_jump[f])
    # Calls through registers: of slots (their targets are edges already), of the vDSO's clock, or of _dl_find_object.
    m = split(registers, word, " ")
    if (m && !slots && f !~ /on_signal|monotonic_ns|find_object/) fail("call through a register in " f ":" registers)
    k = split(edges[f], list, "\n")
    for (j = 1; j <= k; j++) {
      to = list[j]
      if (to == "" || seen[to]++) continue
      plain = to; sub(/@.*/, "", plain)
      if (to ~ /@plt/) { if (plain in allowed) left[plain] = 1; else fail(f " needs " plain " from outside the object"); continue }
      if (plain in allowed || plain ~ /compiler_builtins/) { left[plain] = 1; if (plain in allowed) continue }
      else if (to !~ within) { fail(f " reaches " to ", which is out of bounds"); continue }
      todo[++n] = to
    }
  }
  line = ""
  for (f in left) line = line " " f
  if (!bad) print "fence 2: " n " of " functions " functions of the object are reachable from " what "; beside those within bounds:" (line == "" ? " nothing" : line)
  exit bad
}
