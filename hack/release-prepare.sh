#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Writes a version into the tree before its commit is tagged (make release-prepare VERSION=v0.1.0): what CHANGELOG.md has under
# Unreleased becomes that of the version, and examples and documents name its images. The charts, the manifests of an installation
# and that of krew get their version when the release is made (hack/release.sh).
#
#   DATE   of the release   today
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'release-prepare: %s\n' "$*" >&2; exit 1; }

version=${1:-${VERSION:-}}
date=${DATE:-$(date -u +%Y-%m-%d)}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]] || fail "VERSION=$version is not the version of a release, such as v0.1.0"
[[ $date =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] || fail "DATE=$date is not a date, such as 2027-01-31"
repository=https://github.com/configdep/configdep
mkdir -p .cache
tmp=$(mktemp .cache/release-prepare.XXXXXX)
trap 'rm -f "$tmp"' EXIT

! grep -qF "## [${version#v}]" CHANGELOG.md || fail "CHANGELOG.md already has a heading for $version"
awk -v heading="## [${version#v}] - $date" -v name="${version#v}" -v version="$version" -v repository="$repository" '
  $0 == "## [Unreleased]" { print; print ""; print heading; headings++; next }
  index($0, "[Unreleased]: ") == 1 {
    print "[Unreleased]: " repository "/compare/" version "...main"
    print "[" name "]: " repository "/releases/tag/" version
    links++
    next
  }
  { print }
  END { if (headings != 1 || links != 1) { print "release-prepare: CHANGELOG.md needs one heading ## [Unreleased], and one link of this name" >"/dev/stderr"; exit 1 } }
' CHANGELOG.md >"$tmp"
cat "$tmp" >CHANGELOG.md # which keeps its mode
hack/release-notes.sh "$version" >/dev/null

# hack/release-check.sh finds those that are left.
images='ghcr\.io/configdep/[a-z-]+:v[0-9]'
while IFS= read -r -d '' file; do
  sed -E "s#(ghcr\.io/configdep/[a-z-]+):v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?#\1:$version#g" "$file" >"$tmp"
  cat "$tmp" >"$file"
done < <(git grep -lzE "$images" -- artifacts docs README.md test/e2e)

echo "Review the changes (git diff). By hand: last-reviewed in security-insights.yml, the Go of the Dockerfile, and what says that nothing is released:"
git grep -niE 'no release (has been made|exists|yet)|has been released yet|the first release' -- . ':!hack' ':!docs/clientgo' || :
