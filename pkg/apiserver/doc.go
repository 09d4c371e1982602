// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiserver assembles the server: Options, from flags, become a Config, which is
// completed and becomes a Server. It is the only package that imports all the others.
//
// It does no I/O before Server.Run, except to read the files that flags name, and what the
// delegated authentication of the generic API server reads at startup.
package apiserver
