// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package watches lets many clients keep copies of the objects that the server shows, while all
// objects change. The clients' connections are cut all the time, so they switch between three
// replicas, which are occasionally killed or stopped gracefully. In repeated calms nothing changes,
// and then the copy of each client must equal the list of each replica and the expected state.
//
// SOAK_DURATION=30m makes it run for that long, with thousands of workloads. Replicas are restarted
// only in the first third, so that growth of their memory can be measured. Without it, there are
// some hundred workloads and a single calm.
//
// SOAK_SEED=n repeats the same changes and cuts. The scheduling of the processes is not
// reproducible.
package watches
