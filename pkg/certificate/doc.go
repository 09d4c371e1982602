// Package certificate keeps a serving certificate of the server's own making in a Secret
// that all replicas share, and the CAs that kube-apiserver trusts in the objects that name
// them.
//
// What is to be done is decided by pure functions over the content of the Secret (Profile).
// Around them are a Store, by which every replica reads and watches the Secret and the
// leader writes it, and Bundles, by which the leader keeps caBundle right.
//
// One rule holds at any moment, over rotations, restarts and accidents: each certificate
// that some replica may serve verifies by the caBundle that is in the cluster. So
//
//   - the Secret remembers each certificate that was served and has not expired, and its
//     bundle holds the CAs of them all;
//   - a new CA signs nothing until it has been in the cluster's objects for the overlap;
//   - nothing needed is remembered anywhere else.
//
// Private keys are never logged. The package imports no other of ours.
package certificate
