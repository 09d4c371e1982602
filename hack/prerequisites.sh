#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Fails, and tells what to do, where something is missing that everything else needs: git,
# and the Go of go.mod or a later one. All other tools are built from source by Go.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'configdep: %s\n' "$*" >&2; exit 1; }

((BASH_VERSINFO[0] > 4 || BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4)) || fail "bash 4.4 or later is needed, and this is $BASH_VERSION"
command -v git >/dev/null || fail "git is not installed"
command -v go >/dev/null || fail "go is not installed, or not in PATH; see https://go.dev/doc/install"

want=$(awk '$1 == "go" { print $2; exit }' go.mod)
# Asked here, inside the module, because a go command from 1.21 on fetches the toolchain
# that go.mod asks for, unless it is told not to.
have=$(go env GOVERSION) || fail "go $want is needed, and go could not provide it: the reason is above"
have=${have#go}
have=${have%% *} # "1.26.1 X:experiment"
oldest=$(printf '%s\n' "$want" "$have" | sort -V | head -n 1)
[[ $oldest == "$want" ]] || fail "go $want is needed, and $(command -v go) is go $have: install a later one (https://go.dev/doc/install), or let go fetch it: export GOTOOLCHAIN=auto"
