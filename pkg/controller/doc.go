// Package controller restarts workloads whose pods run with old content.
//
// It is level-triggered: whatever happens to a workload or its sources puts the workload
// into a queue, and a worker asks policy.Decide what is to be done. A restart is one
// patch, bound to the version of the workload that the decision was made for. All that
// it knows is in the cluster, so that a restart of the process or a new leader neither
// loses a change nor restarts anything twice; what is kept in memory only makes it
// quicker or quieter. One replica at a time leads.
package controller
