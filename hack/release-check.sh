#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Checks that a release, or its image, can be made of this tree: it is what is committed and nothing
# more, VERSION is the tag of the commit and what the tree says (hack/release-prepare.sh), and BUILD_IMAGE and BASE_IMAGE name
# images by digest.
#
#   hack/release-check.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

version=$1
# Whatever this user's git is told to overlook.
uncommitted=$(git -c core.excludesFile= status --porcelain --untracked-files=all)
uncommitted+=$(git ls-files --others -- cmd pkg hack artifacts)
[[ -z $uncommitted ]] || fail "a release is made of what is committed, and this is not:"$'\n'"$uncommitted"
overlooked=$(git ls-files -v | grep '^[a-zS]' || true)
[[ -z $overlooked ]] || fail "git is told to overlook changes of (git update-index --assume-unchanged):"$'\n'"$overlooked"
[[ $(git rev-parse --quiet --verify "refs/tags/$version^{commit}") == "$(git rev-parse HEAD)" ]] ||
  fail "a release is made of its tag, and $version is not the tag of this commit: git checkout $version"
hack/release-notes.sh "$version" >/dev/null
named=$(git grep -nE 'ghcr\.io/configdep/[a-z-]+:v[0-9]' -- artifacts docs README.md test/e2e | grep -vE ":${version//./\\.}([^0-9A-Za-z.-]|\$)" || true)
[[ -z $named ]] || fail "these are images of another version than $version (hack/release-prepare.sh):"$'\n'"$named"
for name in BUILD_IMAGE BASE_IMAGE; do
  [[ ${!name:-} =~ ^[A-Za-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}$ ]] ||
    fail "$name=${!name:-} names no image by its digest (IMAGE@sha256:...), which is what a release is made from; see the Dockerfile"
done
go_version=$(hack/go-version.sh)
tag=${BUILD_IMAGE%%@*} tag=${tag##*/}
[[ $tag != *:* || $tag == *:"$go_version" || $tag == *:"$go_version"-* ]] ||
  fail "BUILD_IMAGE=$BUILD_IMAGE has another Go than $go_version, so that the image would hold another program"
