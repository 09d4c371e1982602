// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package certificate keeps a serving certificate of the server's own making in a Secret
// that all replicas share, and the CAs that kube-apiserver trusts in the objects that name
// them.
//
// What is to be done is decided by pure functions over the content of the Secret (Profile).
// Around them are a Store, by which every replica reads, watches and repairs the Secret and the
// leader renews what is in it, and Bundles, by which the leader keeps caBundle correct.
//
// One rule holds at any moment, over rotations, restarts and accidents: each certificate
// that some replica may serve verifies by the caBundle that is in the cluster. So
//
//   - the Secret remembers each certificate that was served and has not expired, and its
//     bundle holds the CAs of them all;
//   - a new CA signs nothing until it has been in the cluster's objects for the overlap;
//   - nothing needed is remembered anywhere else.
//
// Users may restore the Secret from a backup while a replica starts, leads at once, and knows
// nothing newer. So
//
//   - every replica holds all certificates that it has seen and that have not expired, and
//     repairs a Secret that lacks one;
//   - a new leader only adds CAs to caBundle, and removes the others once it has led for the
//     overlap, and the Secret has existed for it: a replica that serves must see the Secret in
//     less than that;
//   - what the Secret says of a CA that is published counts for a new leader only if the CA is
//     in the cluster's objects.
//
// A replica that starts while the Secret is empty makes another, by a CA that no client trusts
// yet. The other replicas have that CA trusted, but switch to no certificate of a CA that they
// have only seen; and that replica switches to theirs.
//
// The manifests make the Secret, and nothing here does. While it does not exist, nothing is
// renewed, as it could not be noted; replicas serve by what they hold, and the leader has that
// trusted.
//
// A CA of ours may sign for the names of the Service alone. When these change, so that it may not
// sign for them, another CA is made, as if it were too old.
//
// Private keys are never logged. The package imports no other of ours.
package certificate
