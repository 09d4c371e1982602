// Package soak tries the server in random histories against a real control plane: all that
// owners of workloads and of their sources do, while requests fail, answers are lost or come
// late, watches break, replicas are killed, halted or cut off so that they lose their lease,
// the key of the hash is lost or replaced, and the API server restarts.
//
// A history is drawn from a seed. In each of its cells, which are namespaces, an owner has
// some workloads that share some sources. Workloads differ in kind, mode, patterns, strategy
// and least interval. Owners change, delete and recreate sources, and change content back;
// they release, scale to zero and back, pause and resume, undo rollouts, release what never
// becomes ready, delete in the foreground, and rewrite what they own; some run an operator
// that takes away whatever the server writes. Phases follow one another, and after each there
// is a calm: faults end, and the test waits until every replica shows every workload as it
// ought to be. The seed fixes what is done and when; how the processes interleave is theirs.
//
// The webhook is there in one half of the histories. Nothing else depends on that, so that a
// seed can be played in both ways.
//
// The oracle beside it knows of each pod with which content it was started. The journal tells
// it, which watches etcd itself: all resources in one order, and no gap while the API server
// is away. At each calm, the pods of every workload that has opted in must have started with
// the present content, as far as its rules make that count; and of restarts there must have
// been as few as can be:
//
//   - none, when what the workload reads has not changed, or has changed while no server ran
//     and is again what it was; never one when it has not opted in, while it is paused, or
//     while it has no replicas;
//   - never more than there were changes, at any moment; one for changes that belong together,
//     and for all that were made while no server ran;
//   - never two for the same content;
//   - never two within the least interval;
//   - when nothing disturbs the servers: none but for a change since the template last
//     changed. What came before it was read by the pods that it made.
//
// That there is at least one restart where one is needed follows from the pods. Besides, the
// server never writes to a workload that is being deleted, and when nothing disturbs it, it
// does not write more than writeLimit times in a phase, whatever an operator does.
//
// In quiet phases nothing is forgiven: one leader has watched all the time, so that it knows
// what came first, whatever owners remove. Opting in adopts what is there at that moment, and
// not what is there when that is recorded. Content that changed and changed back must not
// leave a pod that started in between.
//
// What the oracle assumes:
//
//   - A pod reads what is there when it is created. It may be something newer, but nobody can
//     rely on that. It has one container, which never restarts.
//   - A pod that requires a source or a key that is not there reads once it is there. The
//     kubelet would let it wait; the simulated one does not, so that the pods of the old
//     template are gone already, which makes no difference once all is calm.
//   - After a disturbance a record adopts what is there, as far as nothing was remembered
//     before it: because an owner has removed the last one, because the workload has just
//     opted in, or because the template has begun to read other things. So does one that could
//     not be written before the key of the hash was replaced.
//   - A rollback of a rollout that has not finished leaves pods that never stopped. They are
//     taken for new.
//   - When an owner removes what is remembered, and a disturbance hides whether the template
//     changed before or after the sources that it uses, the server may restart in doubt.
//   - When an owner removes that pods are being evicted, the server may begin again. So it may
//     when a record is removed that pods have been evicted for, and something is disturbed: no
//     template tells when they started.
//   - Content that comes back while something is disturbed comes back only where no pod of a
//     reader starts in between that would not have to wait. Only quiet phases undo rollouts:
//     they bring back records of long ago.
//   - Sources in mode matched are required where they are read. One that is optional comes into
//     being without a workload having known of it.
//   - All revisions are of one etcd, and all clocks are the same.
//
// SOAK_SEED=n plays the history of a seed, and SOAK_DURATION=30m those that follow too, by
// default from any. SOAK_WEBHOOK says whether the webhook is there: true, false, or both, which
// plays each history twice; by default the seed does. With none of them, one history is played
// in both ways.
package soak
