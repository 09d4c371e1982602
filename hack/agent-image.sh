#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Prints what the agent's image is called where the server's is called IMAGE:
#
#   AGENT_IMAGE=... hack/agent-image.sh IMAGE
#
# That is AGENT_IMAGE, or configdep-agent beside IMAGE. The tag is that of IMAGE, unless AGENT_IMAGE has one.
set -euo pipefail

image=$1
last=${image##*/}
tag=
[[ $last != *:* ]] || tag=:${last#*:}
agent=${AGENT_IMAGE:-${image%"$last"}configdep-agent}
[[ ${agent##*/} == *:* ]] || agent+=$tag
printf '%s\n' "$agent"
