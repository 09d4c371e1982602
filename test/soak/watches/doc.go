// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package watches lets many clients keep copies of what the server shows, while all of it
// changes and their connections are cut all the time, so that they change between three replicas,
// which are killed, or stopped gracefully, now and then. Calms follow one another in which nothing happens, and each
// client then has to hold what each replica lists, and that has to be the truth.
//
// SOAK_DURATION=30m lets it run that long with thousands of workloads. Replicas are restarted in
// the first third only: then it can be told whether their memory grows. Without it there are
// some hundred workloads and a single calm.
//
// SOAK_SEED=n draws the same changes and the same cuts again. How the processes interleave is
// theirs.
package watches
