// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/x509"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is a cluster with replicas, in which every component sees changes late.
type world struct {
	t   *testing.T
	r   *rand.Rand
	p   Profile
	now time.Time

	secret   []version // the last is the current one
	objects  [][]version
	replicas []*witness
	leader   *witness
	led      time.Time // since when
	found    []Content // what was in the objects then
	settled  time.Time // when the leader removes CAs from the objects; zero while there is no Secret
	look     time.Time // when the leader has something to do, if nothing happens
	woken    string    // what it has seen by then

	back time.Time // when the Secret, which users have deleted, is there again

	made  string    // the certificate that a replica made when it found the Secret empty
	until time.Time // when that replica knows that others serve by another

	verified              map[string]time.Time // what has been found valid, until when
	known                 []*x509.Certificate  // by their numbers in the trace
	cas, leaves, repaired int
	filled, gone          int

	trace []string // what was written, and which replicas started
}

// logf adds a line to the trace, which is printed when a walk fails.
func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%v: ", w.now.Sub(start))+fmt.Sprintf(format, args...))
}

// show describes a content by the numbers of its certificates.
func (w *world) show(c *Content) string {
	number := func(cert *x509.Certificate) string {
		i := slices.IndexFunc(w.known, cert.Equal)
		if i < 0 {
			i, w.known = len(w.known), append(w.known, cert)
		}
		return fmt.Sprint(i)
	}
	s := parse(c, w.now)
	out := "CAs"
	for _, a := range s.authorities {
		out += " " + number(a.cert)
		if a.key == nil {
			out += " (without key)"
		}
		if Fingerprint(a.cert) == s.published {
			out += fmt.Sprintf(" (published after %v)", s.since.Sub(start))
		}
	}
	if s.leaf != nil {
		out += fmt.Sprintf(", serving %s by %s until %v", number(s.leaf.cert()), number(s.leaf.roots[0]), s.leaf.cert().NotAfter.Sub(start))
	}
	for _, old := range s.previous {
		out += fmt.Sprintf(", before %s by %s", number(old.chain[0]), number(old.roots[0]))
	}
	return out
}

// version is a state since a time.
type version struct {
	content Content
	since   time.Time
	lost    bool // users have removed certificates
	missing bool // users have deleted the Secret
}

type witness struct {
	held  Content
	seen  int // of the versions of the Secret
	ready bool
	first string // the certificate that it started with
}

func (w *world) write(c Content) {
	w.secret = append(w.secret, version{content: c, since: w.now})
	w.logf("the Secret holds %s", w.show(&c))
}

func (w *world) latest() Content { return w.secret[len(w.secret)-1].content }

// lose writes what users make of the Secret.
func (w *world) lose(c Content) {
	w.write(c)
	w.secret[len(w.secret)-1].lost = true
}

func (w *world) missing() bool { return w.secret[len(w.secret)-1].missing }

// bound returns the last version of the Secret that every replica has seen: all have time to
// take a new certificate before the one that they have expires. They see within less than the
// overlap that users removed a certificate from it, as a new leader may remove CAs then.
func (w *world) bound() int {
	for i, v := range slices.Backward(w.secret) {
		lag := w.p.Lifetime / 4
		if v.lost {
			lag = w.p.Overlap() * 9 / 10
		}
		if !v.since.After(w.now.Add(-lag)) {
			return i
		}
	}
	return -1
}

// load is what a replica does before it serves.
func (w *world) load(r *witness) {
	*r = witness{}
	found := w.latest()
	if found.equal(&Content{}) && !w.missing() && !slices.ContainsFunc(w.replicas, func(r *witness) bool { return r.ready }) {
		w.fill(r)
		return
	}
	if !found.Usable(w.now) {
		return // another repairs it, or it does not exist, and it tries again
	}
	if accepted, _ := w.take(r, len(w.secret)-1); !accepted {
		w.t.Fatal("a replica that starts refuses what can be served")
	}
	r.ready, r.first = true, string(r.held.Cert)
	if r == w.leader {
		w.led = time.Time{}
	}
	w.logf("replica %d starts with %s", slices.Index(w.replicas, r), w.show(&found))
}

// take is what a replica does with a version of the Secret.
func (w *world) take(r *witness, i int) (accepted, lacks bool) {
	var err error
	r.held, accepted, lacks, err = w.p.take(&r.held, &w.secret[i].content, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	r.seen = i
	return accepted, lacks
}

// watch lets a replica see some of what it has not seen, and all that it must have.
func (w *world) watch(r *witness) {
	bound := w.bound()
	for i := r.seen + 1; i < len(w.secret); i++ {
		if i > bound && w.r.Intn(3) > 0 {
			return
		}
		if w.secret[i].missing {
			r.seen = i
			continue
		}
		if _, lacks := w.take(r, i); lacks {
			w.repair(r)
		}
	}
}

// repair is what Store.repair does.
func (w *world) repair(r *witness) {
	if w.missing() {
		return
	}
	found := w.latest()
	lacks, err := w.p.lacks(&r.held, &found, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	if !lacks {
		return
	}
	combined, _, err := w.p.combine(&r.held, &found, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	w.logf("replica %d repairs the Secret", slices.Index(w.replicas, r))
	w.write(combined)
	w.repaired++
}

// trusted is what a kube-apiserver trusts for an object. It learns of a change within less
// than the overlap.
func (w *world) trusted(object []version) []Content {
	late := w.now.Add(-w.p.Overlap() * 9 / 10)
	for i, v := range slices.Backward(object) {
		if !v.since.After(late) { // this one is known to all; some know of those after it
			var all []Content
			for _, v := range object[i:] {
				all = append(all, v.content)
			}
			return all
		}
	}
	w.t.Fatal("an object has no past")
	return nil
}

// lead is what Store.Lead does, when it is woken.
func (w *world) lead() {
	if !w.led.IsZero() && w.now.Before(w.look) && w.woken == w.events() {
		return
	}
	var objects []Content
	for _, o := range w.objects {
		objects = append(objects, o[len(o)-1].content)
	}
	if w.led.IsZero() {
		w.led, w.found, w.settled = w.now, objects, time.Time{}
	}
	if w.missing() {
		w.settled, w.look, w.woken = time.Time{}, never, w.events()
		return
	}
	if w.settled.IsZero() {
		w.settled = w.now.Add(w.p.Overlap())
	}
	held, found := w.leader.held, w.latest()
	base, _, err := w.p.combine(&held, &found, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	missing := func(ca *x509.Certificate, objects []Content) bool {
		return slices.ContainsFunc(objects, func(o Content) bool { return !slices.ContainsFunc(parseCerts(o.Bundle), ca.Equal) })
	}
	base = inherit(base, w.led, func(ca *x509.Certificate) bool { return missing(ca, w.found) }, w.now)
	plan, err := w.p.Next(base, func(ca *x509.Certificate) bool { return !missing(ca, objects) }, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	if !plan.Content.equal(&found) {
		w.logf("the leader writes, as it %s", strings.Join(plan.Did, ", "))
		w.write(plan.Content)
		w.cas += count(plan.Did, "created a CA")
		w.leaves += count(plan.Did, "issued a serving certificate")
		if len(plan.Did) == 0 {
			w.repaired++
		}
	}
	if w.leader.held, err = adopt(&held, &plan.Content, w.now); err != nil {
		w.t.Fatal(err)
	}
	w.leader.seen = len(w.secret) - 1 // what it was about to see is older
	w.look, w.woken = plan.Look, w.events()
}

// publish is what Bundles.Run does.
func (w *world) publish() {
	want := wanted{w.leader.held.Bundle, w.settled.IsZero() || w.now.Before(w.settled)}
	for i, o := range w.objects {
		last := o[len(o)-1].content
		if right := want.over(last.Bundle, w.now); string(last.Bundle) != string(right) && w.r.Intn(3) > 0 {
			c := Content{Bundle: right}
			w.objects[i] = append(o, version{content: c, since: w.now})
			w.logf("object %d has the bundle of %s", i, w.show(&c))
		}
	}
}

// events identifies a state of what wakes the leader.
func (w *world) events() string {
	return fmt.Sprintf("%p %d %d %d", w.leader, len(w.secret), len(w.objects[0]), len(w.objects[1]))
}

func count(all []string, what string) (n int) {
	for _, s := range all {
		if s == what {
			n++
		}
	}
	return n
}

// accident is what users do to the Secret.
func (w *world) accident() string {
	c := w.latest()
	switch w.r.Intn(8) {
	case 0:
		w.lose(Content{})
		return "emptied"
	case 1:
		c.Cert = []byte("x")
		w.lose(c)
		return "tls.crt damaged"
	case 2:
		c.Bundle = nil
		w.lose(c)
		return "ca.crt damaged"
	case 3:
		c.CAKeys = nil
		w.write(c)
		return "ca.key deleted"
	case 4:
		c.Published = ""
		w.write(c)
		return "annotation deleted"
	default:
		w.lose(w.secret[w.r.Intn(len(w.secret))].content)
		return "restored"
	}
}

// create empties the Secret while a replica starts, which makes another, and may lead at once.
func (w *world) create(leads bool) string {
	w.write(Content{})
	r := w.replicas[w.r.Intn(len(w.replicas))]
	w.fill(r)
	if leads {
		w.leader, w.led = r, time.Time{}
	}
	return "emptied while a replica starts"
}

// fill is what a replica does that starts with an empty Secret.
func (w *world) fill(r *witness) {
	made := next(w.t, w.p, Content{}, nowhere, w.now).Content
	w.lose(made)
	w.load(r)
	// No client trusts what it made. It serves by that, as does a replica that starts now, until
	// the others have repaired the Secret, and it has seen that; or until it is published.
	w.made, w.until = string(made.Cert), w.now.Add(w.p.Lifetime/2)
	w.filled++
}

// remove deletes the Secret, until users apply the manifests again.
func (w *world) remove() string {
	w.lose(Content{})
	w.secret[len(w.secret)-1].missing = true
	w.back = w.now.Add(time.Duration(w.r.Int63n(int64(w.p.Lifetime / 5))))
	w.gone++
	return "deleted"
}

// putBack makes the Secret again, when its time has come: empty, or from a backup. Nothing else
// has written it.
func (w *world) putBack(starter starter) {
	if !w.missing() || w.now.Before(w.back) {
		return
	}
	if w.r.Intn(4) == 0 {
		backups := slices.DeleteFunc(slices.Clone(w.secret), func(v version) bool { return v.missing })
		w.lose(backups[w.r.Intn(len(backups))].content)
		return
	}
	w.lose(Content{})
	if starter >= creates {
		w.create(starter == createsAndLeads)
	}
}

// otherFlags lets leaders want other names for the certificate, so that they need another CA.
func (w *world) otherFlags() string {
	names := []string{service, fmt.Sprint("other-", w.r.Intn(2), ".configdep-system.svc")}
	if w.r.Intn(2) == 0 {
		names = usual.Names
	}
	w.p.Names = names
	w.logf("the names are %q", names)
	return "other flags"
}

func (w *world) check(what string) {
	for i, r := range w.replicas {
		unaware := r.first == w.made && w.now.Before(w.until)
		if !r.ready || unaware && string(r.held.Cert) == w.made {
			continue
		}
		for j, o := range w.objects {
			for _, trusted := range w.trusted(o) {
				if err := w.verify(&r.held, trusted.Bundle); err != nil {
					w.t.Fatalf("after %v (%s) replica %d serves what is not trusted by object %d: %v\nIt serves %s.\nThe object has %s.\n%s",
						w.now.Sub(start), what, i, j, err, w.show(&r.held), w.show(&trusted), strings.Join(w.trace[max(0, len(w.trace)-30):], "\n"))
				}
			}
		}
	}
}

func (w *world) verify(c *Content, bundle []byte) error {
	known := string(c.Cert) + string(bundle)
	if w.now.Before(w.verified[known]) {
		return nil
	}
	err := serves(c, bundle, w.now)
	if err == nil {
		// A certificate does not outlive its CA.
		w.verified[known] = parseCerts(c.Cert)[0].NotAfter
	}
	return err
}

// starter is what a replica does that starts at the time of an accident.
type starter int

const (
	nothing         starter = iota // none starts
	leads                          // it leads
	creates                        // it finds no Secret, and makes one
	createsAndLeads                // it does both
)
