// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

// Notify restarts nothing: an event says that content has changed. On request, the workload is restarted as if it asked for no strategy.
var Notify Strategy = notify{}

type notify struct{ annotate }

// Name implements Strategy.
func (notify) Name() string { return "notify" }
