#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Verifies everything that needs no test (make verify), quick checks first:
#
#   1. Checks that only read: scripts, versions of modules, the workflows of GitHub, the English of the
#      documents, the chart.
#   2. Everything is generated again, in a copy of the tree: nothing may come out
#      different from what is there, and no file may be new.
#   3. golangci-lint, and the alerts and the dashboard.
#
# Uncommitted work is taken as it is, and is never touched. With CI=true, nothing may be
# uncommitted in the end: whatever a build leaves in the tree belongs into .cache.
#
# All checks are run, also after one has failed; the failures are listed in the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE # as in a hook; they would name this tree's for the copy

say() { printf 'verify: %s\n' "$*"; }
failures=()
failed() { failures+=("$1"); printf 'verify: FAILED: %s\n' "$1" >&2; }

hack/prerequisites.sh
[[ $(git rev-parse --show-toplevel 2>/dev/null) -ef $root ]] || {
  echo "verify: this folder is no git checkout (or belongs to another user, see: git status), so there is nothing to compare with" >&2
  exit 1
}
# What belongs to the tree: all but what .gitignore excludes.
files() { git ls-files -z --cached --others --exclude-standard; }
present() { while IFS= read -r -d '' f; do if [[ -e $f || -L $f ]]; then printf '%s\0' "$f"; fi; done; }

mkdir -p .cache
work=$(mktemp -d .cache/verify.XXXXXX)
trap 'rm -rf "$root/$work"' EXIT

say "phase 1: scripts"
scripts=()
while IFS= read -r -d '' f; do
  case $f in
    *.sh) scripts+=("$f") ;;
    *) [[ $(head -c 19 "$f" | tr -d '\0') != '#!/usr/bin/env bash' ]] || scripts+=("$f") ;;
  esac
done < <(files | present)
for f in "${scripts[@]}"; do
  bash -n "$f" || failed "the syntax of $f"
  [[ $(head -c 2 "$f") != '#!' || -x $f ]] || failed "$f cannot be run: chmod +x $f"
done
if command -v shellcheck >/dev/null; then
  shellcheck --shell=bash "${scripts[@]}" || failed "shellcheck"
else
  say "shellcheck is not installed, so scripts are checked for their syntax alone"
fi

say "phase 1: versions of modules"
hack/align.sh check || failed "versions of modules differ; run: make tidy"

say "phase 1: the workflows of GitHub"
if ! actionlint=$(hack/tools/build.sh actionlint) || ! "$actionlint" .github/workflows/*; then
  failed "actionlint"
fi

say "phase 1: the English of the documents"
hack/prose.sh || failed "the English of the documents"

say "phase 1: the Helm charts"
hack/helm.sh lint --strict --quiet artifacts/charts/configdep-policies || failed "the Helm chart of the policies"
for values in artifacts/charts/configdep/ci/*.yaml; do
  hack/helm.sh lint --strict --quiet artifacts/charts/configdep --namespace configdep-system --values "$values" || failed "the Helm chart with $values"
done

say "phase 2: generating everything, in a copy of the tree"
copy=$root/$work/tree
mkdir "$copy"
files | present | tar --null -T - -cf - | tar -xf - -C "$copy"
# The copy is a repository of its own, whose index is what was there before.
git -C "$copy" init -q
git -C "$copy" add --all --force
# Tools are built once for both.
mkdir -p .cache/tools "$copy/.cache"
ln -s "$root/.cache/tools" "$copy/.cache/tools"

if (cd "$copy" && hack/tidy.sh && hack/generate.sh && hack/render.sh); then
  # Without --ignore-removal, the removal of a file that is no longer generated would be staged, and not show.
  git -C "$copy" add --intent-to-add --ignore-removal .
  if ! git -C "$copy" --no-pager diff --exit-code --stat --patch; then
    failed "what is generated is not up to date, or not tidy (+ above is what it should be); run: make generate manifests tidy"
  fi
else
  failed "generating"
fi

say "phase 3: golangci-lint (built the first time, which takes minutes)"
hack/golangci-lint.sh run || failed "golangci-lint"

# Modules of their own, as the first needs Prometheus, and tools have their own dependencies.
say "phase 3: alerts and dashboard"
(export CGO_ENABLED=0; cd test/monitoring && go test -trimpath -tags grpcnotrace ./...) || failed "alerts and dashboard"
DIR=test/monitoring hack/golangci-lint.sh run || failed "golangci-lint of test/monitoring"
DIR=hack/tools/image hack/golangci-lint.sh run || failed "golangci-lint of hack/tools/image"

if [[ ${CI:-} == true ]]; then
  say "phase 3: nothing is uncommitted"
  left=$(git status --porcelain)
  if [[ -n $left ]]; then
    printf '%s\n' "$left" >&2
    git --no-pager diff --stat
    failed "the tree holds changes that are not committed: commit them, or keep what is not source below .cache"
  fi
fi

if ((${#failures[@]} > 0)); then
  printf '\nverify: FAILED:\n' >&2
  printf '  - %s\n' "${failures[@]}" >&2
  exit 1
fi
say "all is well"
