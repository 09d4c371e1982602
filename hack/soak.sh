#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Looks for what a test with fixed seeds does not find (make soak): plays everything that draws
# its input, with new seeds and at length. The parts, each of which takes about SOAK_DURATION:
#
#   properties    every property test of pkg (see test/seeds), and every fuzz test
#   simulation    random histories of the controller beside an oracle (test/simulation)
#   histories     random histories against a real control plane (test/extended/soak)
#   watches       many clients of the real server (test/extended/soak/watches, test/extended/clusters)
#
#   hack/soak.sh [PART...]    all by default
#
#   SOAK_DURATION   such as 30m or 1h30m                                   30m
#   SOAK_SEED       the seed to begin with, in every part                  drawn
#   RACE            -race, for the parts that are not about memory or numbers
#   TEST_FLAGS      more flags of go test
#
# A part that fails prints how to repeat it, and the next ones run all the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'soak: %s\n' "$*"; }
fail() { printf 'soak: %s\n' "$*" >&2; exit 1; }

export SOAK_DURATION=${SOAK_DURATION:-30m}
[[ $SOAK_DURATION =~ ^(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?$ && $SOAK_DURATION ]] || fail "SOAK_DURATION=$SOAK_DURATION is not like 1h30m or 90s"
seconds=$((10#${BASH_REMATCH[2]:-0} * 3600 + 10#${BASH_REMATCH[4]:-0} * 60 + 10#${BASH_REMATCH[6]:-0}))
((seconds > 0)) || fail "SOAK_DURATION=$SOAK_DURATION is no time"
[[ ${SOAK_SEED:-} =~ ^[0-9]*$ ]] || fail "SOAK_SEED=$SOAK_SEED is not a number"
read -ra flags <<<"${TEST_FLAGS:-}"
race=()
[[ -z ${RACE:-} ]] || race=("$RACE")
failures=()
run() { # what failed if it does, command
  "${@:2}" || failures+=("$1")
}

# The packages below pkg whose tests import test/seeds.
packages() { grep -rl --include='*_test.go' '/test/seeds"' pkg | xargs -n 1 dirname | sort -u | sed 's|^|./|'; }

properties() {
  local all=() fuzz=() p
  mapfile -t all < <(packages)
  ((${#all[@]} > 0)) || fail "no package below pkg imports test/seeds"
  run properties go test "${race[@]}" -count 1 -timeout 0 -v "${flags[@]}" "${all[@]}"
  # go test fuzzes one test at a time. It writes input that fails into testdata/fuzz, where it
  # is a case of the test from then on.
  mapfile -t fuzz < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' pkg cmd test | sed -E 's|^(.*)/[^/]*:func (.*)$|./\1 \2|' | sort)
  ((${#fuzz[@]} > 0)) || fail "there is no fuzz test"
  local each=$((seconds / ${#fuzz[@]} + 1))
  for p in "${fuzz[@]}"; do
    run "properties: $p" go test -run '^$' -fuzz "^${p#* }\$" -fuzztime "${each}s" "${p% *}"
  done
}

# Rounds, because the number of histories that fit into a time depends on the machine.
simulation() {
  local end=$((SECONDS + seconds)) first=${SOAK_SEED:-$((RANDOM << 30 | RANDOM << 15 | RANDOM))} count=2000 before=${#failures[@]}
  while ((SECONDS < end && ${#failures[@]} == before)); do
    say "$count histories of the simulation, beginning with $first"
    SIMULATION_FIRST=$first SIMULATION_COUNT=$count run simulation go test -count 1 -timeout 0 "${flags[@]}" ./test/simulation
    first=$((first + count))
  done
}

histories() {
  hack/controlplane/build.sh >/dev/null
  run histories go test "${race[@]}" -count 1 -timeout 0 -v "${flags[@]}" ./test/extended/soak
}

# Without the race detector: this judges the memory, and its clients would have no processor
# left for the server.
watches() {
  hack/controlplane/build.sh >/dev/null
  run watches go test -count 1 -timeout 0 -v "${flags[@]}" ./test/extended/soak/watches
  run watches go test -count 1 -timeout 0 -run '^TestOneResourceInAnotherEtcd$' "${flags[@]}" ./test/extended/clusters
}

(($# > 0)) || set -- properties simulation histories watches
for part; do
  case $part in
    properties | simulation | histories | watches) ;;
    *) fail "there is no part $part" ;;
  esac
done
for part; do
  say "$part, for about $SOAK_DURATION"
  "$part"
done
if ((${#failures[@]} > 0)); then
  printf 'soak: FAILED: %s\n' "${failures[@]}" >&2
  exit 1
fi
say "nothing was found"
