// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package watchcache serves list and watch of objects that are computed and not stored,
// with the semantics of the watch cache of kube-apiserver, from several replicas at once.
//
// # Versions
//
// Each replica computes its objects from the same inputs: the watch streams of some
// resources of kube-apiserver. Each stream brings the changes of its resource in the
// order of their revisions, and bookmarks between them. The watermark of a replica is
// the highest revision up to which all of its streams have arrived. A version of an
// object, an event or a list is made of the watermark at which it was published and a
// counter; it says one thing that is true on every replica: a client that has seen it has seen
// the effect of every input up to that watermark.
//
// A watch from version X of another replica therefore begins with what has become of every
// object that inputs beyond the watermark of X have touched, in one event for each, and goes
// on with all that inputs beyond it cause. A replica applies inputs of different streams in
// another order than its neighbour, so that it may repeat what the client knows, or show
// for a moment a state that is older in one respect and newer in another. What it shows
// last is right, and nothing is left out:
//
//   - Every input that touches an object makes an event of it, even if nothing in it
//     changes. Otherwise a state that a neighbour has shown would never be corrected.
//   - Once an event of an object has been sent, all later ones are, whatever their cause:
//     the first may have shown a state without an older input that arrives late.
//   - Where it is not known whether the client has an object, one that does not match its
//     selector is sent as deleted: another replica, which has applied the inputs in another
//     order, may have shown a state that matched. Not so where one stream alone decides
//     whether it matches, as all replicas have seen the same states of that.
//   - What time alone has caused has no revision, and is always sent; and so is an object
//     whose state follows from the time, as at another replica it may be another time, or from
//     what one replica alone has seen (see Change.Timed).
//   - While a replica is behind the client, what it sends may lack what the client has seen
//     elsewhere. The version then says so, and no watch can begin from it (410): another
//     replica would not know that it has to be sent again.
//
// A replica that has just started, or that has lost a stream and listed it again, does not
// know what was there and has gone before. Versions below that point are expired (410)
// there, but for those that it has published itself: it knows what it has shown.
//
// How far a watch is with that, what takes it further, and what a cache can be asked for, is in state.go.
//
// This rests on all inputs having revisions of one counter, which is so when they are in
// one etcd. The code that feeds the cache has to see to it.
package watchcache
