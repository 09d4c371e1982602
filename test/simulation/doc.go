// Package simulation checks the controller against an oracle, in thousands of random
// histories and without a cluster.
//
// A world stands for the cluster: ConfigMaps, Secrets and workloads with versions and
// managed fields as kube-apiserver sets them, and pods that remember with which content
// they were started. Servers live in it, each with the real index and the real controller.
// What they read reaches them late and in pieces, what they ask for fails, is lost or
// arrives when everything has changed, and they die and lose their lease. Time is that of
// a testing/synctest bubble, and everything that is random comes from a seed, so that a
// history is the same each time that it runs.
//
// The oracle knows what pods were started with, which a controller can only conclude. It
// shares no code with package policy. It accepts a restart only when there was a reason for
// it that the server could have known, and wants one wherever there is such a reason.
//
// SIMULATION_SEED=n runs one history and tells all that happens in it; SIMULATION_COUNT=n
// runs so many. A history that fails is made as short as possible before it is told.
package simulation
