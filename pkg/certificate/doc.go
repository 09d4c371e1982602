// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package certificate issues the server's certificate, keeps it in a Secret that all replicas share, and publishes its
// CAs in the objects by which kube-apiserver and other clients trust them: the APIService, with which the leader registers
// the server (Registration), and a ConfigMap.
//
// Profile.Next, a pure function, says what the Secret should hold next. A replica that starts and the leader write
// that; every replica serves what the Secret holds (Store). The leader publishes the bundle of the Secret (Bundles).
//
// A CA is replaced in four steps, all of which the Secret shows, since certificates say when they were issued:
//
//  1. A new CA is added to the bundle. The key of the old one is dropped.
//  2. After the overlap, the new CA issues the next serving certificate.
//  3. All replicas serve that one as soon as they see it.
//  4. After the overlap, the old CA is removed from the bundle.
//
// So every client trusts whatever a replica serves, if both follow within the overlap.
//
// The Secret is the only memory. Where it holds no certificate that can be served, because it is empty, damaged or for
// other names, Next issues one at once. If that takes another CA, clients refuse the certificate until the bundle has
// reached them, a second or so later. While the Secret holds nothing valid or does not exist, replicas serve what they
// have.
//
// Private keys are never logged.
package certificate
