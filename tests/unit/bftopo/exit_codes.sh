#!/bin/bash
# exit_codes.sh BFTOPO: the words of the program, their stream, and its exit code.
set -u
bftopo="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
failures=0

# expect CODE STREAM PATTERN ARGUMENTS…: STREAM (out or err) has a line like PATTERN.
expect() {
  local code="$1" stream="$2" pattern="$3"
  shift 3
  "$bftopo" "$@" >"$work/out" 2>"$work/err" </dev/null
  local found=$?
  if [[ $found != "$code" ]] || ! grep -qE -- "$pattern" "$work/$stream"; then
    echo "FAILED: bftopo $*: expected exit code $code and '$pattern' on std$stream, found $found:"
    cat "$work/out" "$work/err"
    failures=$((failures + 1))
  fi
}

printf '0 1\n1 2\n2 0\n' >"$work/triangle"
printf '0 1\n1 x\n' >"$work/broken"
printf '0 1 0.5\n1 0 0.5\n' >"$work/weighted"

expect 0 out 'Usage: bftopo show' --help
expect 0 out '--local-size' check --help
expect 0 out '^bftopo [0-9]' --version
expect 0 out '^base .*--k' list
expect 0 out '"period": 9' check base --n 25 --k 1 --json
expect 0 out 'ranks +3$' check "$work/triangle"
expect 0 out 'hears 1 \(1\), sends to 5' show ceca --n 25 --step 1 --ranks 5
expect 0 out '^digraph' draw ring --n 5
expect 0 out 'ring all-reduce' simulate base --n 25 --k 2
printf '0 0 1e308\n1 0 1e308\n0 1 1e308\n1 1 1e308\n' >"$work/huge"
expect 1 out 'broken +rows do not sum to 1: that of rank 0 sums to inf' check "$work/huge"
expect 2 err 'values, found that they have overflowed after step [0-9]+' simulate "$work/huge"
expect 2 err 'overflowed after step' simulate "$work/huge" --json
expect 2 err '--output: expected a name that ends in .svg, .dot or .gv, .* found .*/g.png' \
  draw ring --n 5 --output "$work/g.png"
[[ ! -e $work/g.png ]] || { echo 'FAILED: a picture that is none'; failures=$((failures + 1)); }
"$bftopo" draw ring --n 5 --format svg --output "$work/g.picture" && grep -q '<svg' "$work/g.picture" ||
  { echo 'FAILED: no picture of an asked-for format'; failures=$((failures + 1)); }

# Output that is lost is a failure.
lost() {
  local found
  "$bftopo" "$@" >/dev/full 2>"$work/err" </dev/null
  found=$?
  [[ $found == 1 ]] && grep -q 'cannot write standard output: No space left' "$work/err" ||
    { echo "FAILED: bftopo $* > /dev/full: $found"; failures=$((failures + 1)); }
  "$bftopo" "$@" >&- 2>"$work/err" </dev/null
  found=$?
  [[ $found == 1 ]] && grep -q 'cannot write standard output: Bad file' "$work/err" ||
    { echo "FAILED: bftopo $* >&-: $found"; failures=$((failures + 1)); }
}
lost list
lost --help
lost --version
lost show ring --n 5
lost simulate ring --n 5 --json
lost draw "$work/triangle"

# At a terminal long work says what it is about: here it waits for its input.
mkfifo "$work/slow"
exec 3< <(script -qec "'$bftopo' show '$work/slow'" /dev/null </dev/null)
seen=''
while [[ $seen != *"reading $work/slow, 1 s"* ]] && read -r -t 30 -d $'\r' -u 3 seen; do :; done
printf '0 1\n1 0\n' >"$work/slow"
[[ $seen == *"reading $work/slow, 1 s"* ]] && grep -q 'hears 1' <&3 ||
  { echo "FAILED: silent for more than a second: '$seen'"; failures=$((failures + 1)); }
exec 3<&-
expect 1 err 'cannot write' draw ring --n 5 -o "$work/none/ring.svg"
expect 0 out 'ranks +6$' check ring --n 8 --without 3,5
expect 0 out '6 of 8 ranks, without 3, 5' simulate ring --n 8 --without 3,5
expect 2 err 'expected ranks from 0 to 7, found 8' check ring --n 8 --without 3,8
expect 2 err 'expected distinct ranks, found 3 twice' gap ring --n 8 --without 3,3
expect 2 err 'expected a rank that is left, found that all 2 are lost' \
  simulate ring --n 2 --without 0,1
expect 2 err '--without: ' check ring --n 8 --without ''
expect 2 err '--without: .*found x' check ring --n 8 --without 3,x
expect 2 err 'found nothing'
expect 2 err 'wheel' check wheel --n 5
expect 2 err '--n N is missing' check ring
expect 2 err 'line 2.*not a rank' check "$work/broken"
expect 2 err '--k: .ring. does not read it' check ring --n 5 --k 2
expect 2 err 'power of two' check hypercube --n 6
expect 2 err '--n: expected a whole number from 1 to [0-9]+, found zero$' check ring --n zero
expect 2 err '--bandwidth: expected a number of .*, found 0$' simulate ring --n 4 --bandwidth 0
expect 2 err 'has weights, expected none where a rule' check "$work/weighted" --rule metropolis
expect 2 err '--draws excludes --rho' check equistatic --n 8 --draws 3 --rho 0.5
expect 2 err '--local-size: expected a divisor of the 12 ranks, found 5' check ring --n 12 --local-size 5
expect 2 err '--shape wants' check mesh --n 6 --shape 2by3
expect 2 err 'does not hold 6' check mesh --n 6 --shape 2x4
"$bftopo" draw base --n 6 -o "$work/base.svg" && grep -q '<svg' "$work/base.svg" ||
  { echo "FAILED: no picture"; failures=$((failures + 1)); }
exit $((failures > 0))
