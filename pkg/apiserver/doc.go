// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiserver puts the parts together: Options, from flags, become a Config, which
// is completed and becomes a Server. It is the only package that knows all the others.
//
// Nothing here does I/O before Server.Run, but for reading the files that flags name and
// what the delegated authentication of the generic API server reads at the start.
package apiserver
