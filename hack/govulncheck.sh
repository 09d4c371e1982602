#!/usr/bin/env bash
# Looks for known vulnerabilities in what the programs call, by govulncheck (make vulncheck,
# and in make verify). A finding fails it.
#
#   hack/govulncheck.sh [PACKAGE...]       ./... by default, without tests
#
#   GOVULNDB      the database, a URL, also of a folder          https://vuln.go.dev
#   GOVULNCHECK   required: fail where the database cannot be    optional
#                 reached; optional: say so, and let it pass
#   PROBE_TIMEOUT, TIMEOUT   seconds for the first answer, and for all     60, 900
#
# The database is asked again each time, so the same commit may pass today and not tomorrow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'govulncheck: %s\n' "$*"; }
fail() { printf 'govulncheck: %s\n' "$*" >&2; exit 1; }

mode=${GOVULNCHECK:-optional}
[[ $mode == required || $mode == optional ]] || fail "GOVULNCHECK=$mode is neither required nor optional"
db=${GOVULNDB:-https://vuln.go.dev}
probe=${PROBE_TIMEOUT:-60}
# It would find nothing in a folder that holds none, and be content.
[[ $db != file://* || -f ${db#file://}/index/modules.json ]] || fail "$db holds no vulnerability database"
(($# > 0)) || set -- ./...

mkdir -p .cache
tmp=$(mktemp -d .cache/govulncheck.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
govulncheck=$(hack/tools/build.sh vuln)

run() { # seconds, arguments; its own exit code
  code=0
  timeout --kill-after=10 "$1" "$govulncheck" -db "$db" "${@:2}" >"$tmp/out" 2>&1 || code=$?
}
unreachable() {
  say "NOT CHECKED: the vulnerability database $db cannot be reached ($1)"
  [[ $mode == optional ]] || fail "it has to be, as GOVULNCHECK=required"
  say "nothing is known about vulnerabilities; GOVULNDB names another database, GOVULNCHECK=required makes this an error"
  exit 0
}

# Asked for something small first: a program that uses nothing. So a network that swallows
# what is sent costs no more than this, and whatever goes wrong later is no fault of the database.
run "$probe" ./pkg/version
case $code in
  0 | 3) ;;
  124 | 137) unreachable "no answer within $probe seconds" ;;
  *)
    # The second is what it says when another URL than its own does not answer.
    if grep -q 'fetching vulnerabilities' "$tmp/out" || { [[ $db == http* ]] && grep -q 'unrecognized vulndb format' "$tmp/out"; }; then
      unreachable "$(tail -n 1 "$tmp/out")"
    fi
    cat "$tmp/out" >&2
    fail "it does not work (exit code $code)"
    ;;
esac

run "${TIMEOUT:-900}" -show verbose "$@"
cat "$tmp/out"
case $code in
  0) say "no known vulnerability is called by $*, says $db" ;;
  3) fail "vulnerabilities are called, see above" ;;
  124 | 137) fail "not done within ${TIMEOUT:-900} seconds" ;;
  *) fail "it does not work (exit code $code)" ;;
esac
