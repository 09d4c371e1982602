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
printf 'word %.0s' {1..31} >>"$tmp/wrong.md"
found+=$(vale --output=line --minAlertLevel=warning "$tmp/wrong.md" || true)
for rule in Words Names Repeated Long; do
  [[ $found == *configdep.$rule* ]] || { printf 'prose: the rule %s finds nothing in a text that breaks it:\n%s\n' "$rule" "$found" >&2; exit 1; }
done

mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard '*.md')
vale "${files[@]}"

# At most one sentence of twenty in a page has more than 30 words.
long=$(vale --no-exit --output=line --minAlertLevel=warning --filter='.Name == "configdep.Long"' "${files[@]}")
failed=0
while read -r count file; do
  sentences=$(vale ls-metrics "$file" | sed -n 's/.*"sentences": \([0-9]*\).*/\1/p')
  if (((count - 1) * 20 >= sentences)); then
    printf 'prose: %s: %s of %s sentences have more than 30 words; at most one of twenty may:\n%s\n' "$file" "$count" "$sentences" "$(grep -F "$file:" <<<"$long")" >&2
    failed=1
  fi
done < <(cut -d: -f1 <<<"$long" | grep . | uniq -c)
exit $failed
