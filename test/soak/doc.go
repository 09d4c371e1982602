// Package soak tries the server in random histories against a real control plane: all that
// owners of workloads and of their sources do, while requests fail, answers are lost or come
// late, watches break, replicas are killed, halted or cut off so that they lose their lease,
// and the API server restarts.
//
// A history is drawn from a seed. In each of its cells, which are namespaces, an owner has
// some workloads that share some sources. Phases follow one another, and after each there is
// a calm: faults end, and the test waits until every replica shows every workload as it
// ought to be. The seed fixes what is done and when; how the processes interleave is theirs.
//
// The oracle beside it knows of each pod with which content it was started. The journal tells
// it, which watches etcd itself: all resources in one order, and no gap while the API server
// is away. At each calm, the pods of every workload that has opted in must have started with
// the present content; and of restarts there must have been as few as can be:
//
//   - none, when what the workload reads has not changed, or has changed while no server ran
//     and is again what it was; never one when it has not opted in;
//   - never more than there were changes, at any moment; one for changes that belong together,
//     and for all that were made while no server ran;
//   - never two for the same content;
//   - when nothing disturbs the servers: none but for a change since the template last
//     changed. What came before it was read by the pods that it made.
//
// That there is at least one restart where one is needed follows from the pods.
//
// What the oracle assumes:
//
//   - A pod reads what is there when it is created. It may be something newer, but nobody can
//     rely on that.
//   - A pod that requires a source or a key that is not there reads once it is there. The
//     kubelet would let it wait; the simulated one does not, so that the pods of the old
//     template are gone already, which makes no difference once all is calm.
//   - Opting in adopts what is there. So does a record after a disturbance, as far as nothing
//     was remembered before it: because an owner has removed the last one, or because the
//     template has begun to read other things.
//   - A rollback of a rollout that has not finished leaves pods that never stopped. They are
//     taken for new.
//   - When an owner removes what is remembered, and a disturbance hides whether the template
//     changed before or after the sources that it uses, the server may restart in doubt.
//   - Content that comes back, as after deleting and creating again, comes back only where no
//     pod of a reader starts in between that would not have to wait.
//
// SOAK_SEED=n plays the history of a seed, and SOAK_DURATION=30m those that follow too, by
// default from any.
package soak
