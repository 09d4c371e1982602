// Package policy holds what workloads are told, and tell, by annotations: the record of
// a rollout that every replica reads back from the cluster.
//
// Its functions are pure: they get values and the time, and return values. It imports
// package dependency and nothing else of ours.
package policy
