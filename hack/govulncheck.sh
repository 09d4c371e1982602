#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Looks for known vulnerabilities in what the programs call, by govulncheck (make vulncheck,
# and in make test-all). A finding fails it.
#
#   hack/govulncheck.sh [PACKAGE...]       ./... by default, without tests
#
#   GOVULNDB      the database: a URL, also of a folder          https://vuln.go.dev; if that cannot be
#                 reached, the same as module golang.org/x/vulndb, from where modules come
#   GOVULNCHECK   required: fail where no database can be        optional
#                 reached; optional: say so, and let it pass
#   GOVULNCHECK_OS   the operating system for which programs are built    this one
#   PROBE_TIMEOUT    seconds for the first answer                  60
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
holds() { [[ -f $1/index/modules.json ]] || compgen -G "$1/GO-*.json" >/dev/null; }
[[ $db != file://* ]] || holds "${db#file://}" || fail "$db holds no vulnerability database"
(($# > 0)) || set -- ./...

mkdir -p .cache
tmp=$(mktemp -d .cache/govulncheck.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
govulncheck=$(hack/tools/build.sh vuln)

# The standard library is that of releases, whatever Go is here, and the settings are those of hack/build.sh.
go_version=$(hack/go-version.sh)
os=${GOVULNCHECK_OS:-$(go env GOOS)}

run() { # seconds, arguments; its own exit code
  code=0
  GOVERSION=go$go_version GOOS=$os CGO_ENABLED=0 GOFLAGS=-tags=grpcnotrace timeout --kill-after=10 "$1" "$govulncheck" -db "$db" "${@:2}" >"$tmp/out" 2>&1 || code=$?
}
unreachable() {
  say "NOT CHECKED: the vulnerability database $db cannot be reached ($1)"
  [[ $mode == optional ]] || fail "it has to be, as GOVULNCHECK=required"
  say "nothing is known about vulnerabilities; GOVULNDB names another database, GOVULNCHECK=required makes this an error"
  exit 0
}

# The database is also a module, which comes by the proxy, and is verified by the checksum database,
# as all modules are. Its version says when it was made.
from_module() {
  [[ -z ${GOVULNDB:-} ]] || return 1
  say "$db cannot be reached ($1); trying the module golang.org/x/vulndb"
  mkdir "$tmp/module"
  (cd "$tmp/module" && printf 'module vulndb\n\ngo 1.26\n' >go.mod &&
    GOFLAGS=-mod=mod GOWORK=off timeout --kill-after=10 300 go mod download -json golang.org/x/vulndb@latest) >"$tmp/json" 2>"$tmp/out" || return 1
  local dir version
  dir=$(sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p' "$tmp/json")
  version=$(sed -n 's/^\t"Version": "\(.*\)",$/\1/p' "$tmp/json")
  holds "$dir/data/osv" || return 1
  db=file://$dir/data/osv
  say "the database is golang.org/x/vulndb@$version"
}

# Asked for something small first: a program that uses nothing. So a network that swallows
# what is sent costs no more than this, and whatever goes wrong later is no fault of the database.
run "$probe" ./pkg/version
case $code in
  0 | 3) ;;
  *)
    # The last is what it says when another URL than its own does not answer.
    if ((code == 124 || code == 137)); then
      why="no answer within $probe seconds"
    elif grep -q 'fetching vulnerabilities' "$tmp/out" || { [[ $db == http* ]] && grep -q 'unrecognized vulndb format' "$tmp/out"; }; then
      why=$(tail -n 1 "$tmp/out")
    else
      cat "$tmp/out" >&2
      fail "it does not work (exit code $code)"
    fi
    from_module "$why" || unreachable "$why"
    ;;
esac

run 900 -show verbose "$@"
cat "$tmp/out"
case $code in
  0) say "no known vulnerability is called by $*, with go$go_version, says $db" ;;
  3) fail "vulnerabilities are called, see above" ;;
  124 | 137) fail "not done within 900 seconds" ;;
  *) fail "it does not work (exit code $code)" ;;
esac
