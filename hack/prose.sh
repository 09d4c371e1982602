#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Checks the English of the documents by the rules of hack/vale (make verify). The tool needs a C compiler to be built;
# without one it says so, and passes, unless CI=true.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

read -r cc _ <<<"$(go env CC)" # flags may follow
if ! command -v "$cc" >/dev/null; then
  echo "prose: there is no C compiler ($cc), so the English of the documents is not checked" >&2
  [[ ${CI:-} != true ]]
  exit
fi
vale=$(hack/tools/build.sh vale)
vale() { "$vale" --config hack/vale/.vale.ini --no-global "$@"; }

# So that it cannot pass for want of looking.
mkdir -p .cache
tmp=$(mktemp -d .cache/prose.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
echo "This is mended by by Kubectl." >"$tmp/wrong.md"
found=$(vale --output=line "$tmp/wrong.md" || true)
for rule in Words Names Repeated; do
  [[ $found == *configdep.$rule* ]] || { printf 'prose: the rule %s finds nothing in a text that breaks it:\n%s\n' "$rule" "$found" >&2; exit 1; }
done

mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard '*.md')
vale "${files[@]}"
