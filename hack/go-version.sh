#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Prints the version of Go with which releases are made, such as 1.26.0: that of the Dockerfile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
awk -F= '/^ARG GO_VERSION=/ { print $2; found = 1; exit } END { if (!found) { print "the Dockerfile does not say the version of Go" >"/dev/stderr"; exit 1 } }' Dockerfile
