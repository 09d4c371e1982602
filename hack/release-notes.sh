#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Prints what CHANGELOG.md says of a version, without its heading, and fails where it says nothing.
#
#   hack/release-notes.sh v0.1.0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'release-notes: %s\n' "$*" >&2; exit 1; }

version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]] || fail "$version is not the version of a release, such as v0.1.0"
notes=$(awk -v heading="## [${version#v}]" '
  index($0, heading) == 1 { found = 1; next }
  found && (/^## / || /^\[[^]]+\]: /) { exit }
  found' CHANGELOG.md)
[[ $notes =~ [^[:space:]] ]] || fail "CHANGELOG.md says nothing of $version: there is no heading ## [${version#v}], or nothing below it"
printf '%s\n' "$notes" | sed '/./,$!d'
