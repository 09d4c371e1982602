// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package logging keeps tokens and content of Secrets out of the log of the program, however verbose it is.
//
// client-go logs the bodies of requests and answers from level 8 on: Secrets, TokenReviews with the tokens of callers,
// and workloads with the values in their environment. No client can be told not to. Several are made inside of the
// generic API server, and some of these make requests with a context that is not the caller's. So the limit is that of
// the logger of the program, from which all others are derived.
//
// It imports no other package of ours.
package logging
