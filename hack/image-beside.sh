#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Prints what another image, such as configdep-agent, is called where the server's is called IMAGE:
#
#   hack/image-beside.sh NAME IMAGE [OTHER]
#
# That is OTHER, or NAME beside IMAGE. The tag is that of IMAGE, unless OTHER has one.
set -euo pipefail

image=$2
last=${image##*/}
tag=
[[ $last != *:* ]] || tag=:${last#*:}
other=${3:-${image%"$last"}$1}
[[ ${other##*/} == *:* ]] || other+=$tag
printf '%s\n' "$other"
