// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package certificate issues the server's certificate, keeps it in a Secret that all
// replicas share, and publishes its CAs in the objects by which kube-apiserver trusts
// them.
//
// Pure functions over the content of the Secret (Profile) decide what is to be done. Around
// them are a Store, with which every replica reads, watches and repairs the Secret and the
// leader renews its content, and Bundles, with which the leader keeps caBundle correct.
//
// One invariant holds at any moment, through rotations, restarts and accidents: each
// certificate that some replica may serve is verified by the caBundle in the cluster. So
//
//   - the Secret remembers each certificate that was served and has not expired, and its
//     bundle holds the CAs of them all;
//   - a new CA signs nothing until it has been in the cluster's objects for the overlap;
//   - nothing needed is remembered anywhere else.
//
// Users may restore the Secret from a backup while a replica starts that becomes the leader
// at once and knows nothing newer. So
//
//   - every replica holds all certificates that it has seen and that have not expired, and
//     repairs a Secret that lacks one;
//   - a new leader only adds CAs to caBundle, and removes the others once it has led for the
//     overlap, and the Secret has existed for it: a replica that serves must see the Secret in
//     less than that;
//   - what the Secret says of a CA that is published counts for a new leader only if the CA is
//     in the cluster's objects.
//
// A replica that starts while the Secret is empty issues another certificate, by a CA that no
// client trusts yet. The other replicas publish that CA, but do not switch to a certificate of
// a CA that they have only seen; and that replica switches to theirs.
//
// The manifests create the Secret; this package does not. While it does not exist, nothing is
// renewed, because a new certificate could not be stored; replicas serve with what they hold,
// and the leader keeps that trusted.
//
// Our CA may sign only for the names of the Service. If these change so that it may not sign for
// them, another CA is created, as if it were too old.
//
// Private keys are never logged.
package certificate
