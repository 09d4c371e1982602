#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Keeps the modules below at the versions of the main go.mod. The programs of these modules are built
# beside the server, and what they have in common with it would be compiled again for each version.
#
#   hack/align.sh          write the versions of the main go.mod into the others
#   hack/align.sh check    fail if a version differs
#
# A module may need a later version than the main one: then raise it there (go get MODULE@VERSION).
set -euo pipefail
export LC_ALL=C # for sort and join
cd "$(dirname "${BASH_SOURCE[0]}")/.."

modules=(hack/controlplane/{kubernetes,etcd,kwok} hack/tools/{helm,codegen} test/monitoring)

# versions prints the path and the version of each module that a go.mod requires, or uses as a replacement.
versions() { awk '{ sub(/^.*=> /, ""); sub(/^require /, ""); if ($1 ~ /\./ && $2 ~ /^v[0-9]/ && $2 != "v0.0.0") print $1, $2 }' "$1" | sort -u; }

[[ ${1:-check} == check ]] || { echo "align: unknown argument $1: check, or none" >&2; exit 2; }
differs=0
for module in "${modules[@]}"; do
  while read -r path want got; do
    [[ $want != "$got" ]] || continue
    differs=1
    if [[ ${1:-} == check ]]; then
      echo "align: $module has $path $got, the main go.mod $want: run make tidy, or raise it there: go get $path@$got" >&2
    elif grep -q "=> $path " "$module/go.mod"; then
      go mod edit -replace="$path=$path@$want" "$module/go.mod"
    else
      go mod edit -require="$path@$want" "$module/go.mod"
    fi
  done < <(join <(versions go.mod) <(versions "$module/go.mod"))
done
[[ ${1:-} != check || $differs == 0 ]]
