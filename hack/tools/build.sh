#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Builds tools and prints the path of each. Their versions are those of the go.mod files beside
# this script; the results are cached under .cache/tools, with a key that changes with these, so
# that each is built once. A module with a program of its own, such as image, is built from that.
#
#   hack/tools/build.sh helm actionlint
#
# Whatever has a time limit, such as a test, builds its tools before. Progress goes to standard
# error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf 'tools: %s\n' "$*" >&2; }

(($# > 0)) || { say "usage: hack/tools/build.sh NAME..."; exit 1; }
version=$(go env GOOS GOARCH GOVERSION)
for name; do
  module=hack/tools/$name
  [[ -f $module/go.mod ]] || { say "there is no $module/go.mod"; exit 1; }
  sources=("$module/go.mod" "$module/go.sum")
  own=("$module"/*.go)
  if [[ -f ${own[0]} ]]; then sources+=("${own[@]}"); fi
  key=$({ cat "${sources[@]}"; echo "$version"; } | git hash-object --stdin)
  out=$PWD/.cache/tools/$name-${key:0:12}
  if [[ ! -x $out ]]; then
    say "building $name, once; minutes if nothing is in the Go cache yet ..."
    started=$SECONDS
    # Built aside and moved into place, so that two builds at once do no harm. The flags are
    # those of "make build", with which it shares what is compiled.
    mkdir -p .cache/tools
    tmp=$(mktemp "$out.XXXXXX")
    trap 'rm -f "$tmp"' EXIT
    cgo=0
    if [[ $name == vale ]]; then cgo=1; fi # its parsers are in C
    if [[ -f ${own[0]} ]]; then
      what=(-C "$module" -o "$tmp" .)
    else
      what=(-modfile="$module/go.mod" -o "$tmp" "$(awk '$1 == "tool" { print $2; exit }' "$module/go.mod")")
    fi
    GOFLAGS="-mod=readonly -trimpath -buildvcs=false" CGO_ENABLED=$cgo go build "${what[@]}"
    chmod 755 "$tmp"
    mv "$tmp" "$out"
    trap - EXIT
    say "$name: done in $((SECONDS - started)) s"
  fi
  printf '%s\n' "$out"
done
