package certificate

import (
	"crypto/x509"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/configdep/configdep/test/seeds"
)

// world is a cluster with replicas, in which everybody sees everything late.
type world struct {
	t   *testing.T
	r   *rand.Rand
	p   Profile
	now time.Time

	secret   []version // all that it has been; the last is what it is
	objects  [][]version
	replicas []*witness
	leader   *witness
	look     time.Time // when the leader has something to do, if nothing happens
	woken    string    // what it has seen by then

	verified            map[string]time.Time // what has been found good, until when
	known               []*x509.Certificate  // by their numbers in the trace
	cas, leaves, mended int

	trace []string // of what was written, and who went over to it
}

// logf notes something for whoever reads why a walk failed.
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

// version is what something has been since a time. A Secret without content is deleted.
type version struct {
	content Content
	since   time.Time
}

type witness struct {
	held  Content
	seen  int // of the versions of the Secret
	ready bool
}

func (w *world) write(c Content) {
	w.secret = append(w.secret, version{c, w.now})
	w.logf("the Secret holds %s", w.show(&c))
}

func (w *world) latest() Content { return w.secret[len(w.secret)-1].content }

// lag is how late a replica sees the Secret at most: all have time to take a new
// certificate before the one that they have expires.
func (w *world) lag() time.Duration { return w.p.Lifetime / 4 }

// load is what a replica does before it serves.
func (w *world) load(r *witness) {
	*r = witness{}
	found := w.latest()
	if !found.Usable(w.now) {
		return // the leader mends it, and it tries again
	}
	if !Succeeds(&r.held, &found, w.now) {
		w.t.Fatal("a replica that starts refuses what can be served")
	}
	r.held, r.seen, r.ready = found, len(w.secret)-1, true
	w.logf("a replica starts with %s", w.show(&found))
}

// watch lets a replica see some of what it has not seen, and all that is older than the lag.
func (w *world) watch(r *witness) {
	for i := r.seen + 1; i < len(w.secret); i++ {
		if v := w.secret[i]; v.since.After(w.now.Add(-w.lag())) && w.r.Intn(3) > 0 {
			return
		}
		r.seen = i
		found := w.secret[i].content
		if Succeeds(&r.held, &found, w.now) {
			r.held = found
		} else if latest := w.latest(); latest.equal(&Content{}) && r.held.Usable(w.now) {
			w.write(r.held) // it was deleted
		}
	}
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
	if w.now.Before(w.look) && w.woken == w.events() {
		return
	}
	held, found := w.leader.held, w.latest()
	base, err := Combine(&held, &found, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	plan, err := w.p.Next(base, func(ca *x509.Certificate) bool {
		return !slices.ContainsFunc(w.objects, func(o []version) bool {
			return !slices.ContainsFunc(parseCerts(o[len(o)-1].content.Bundle), ca.Equal)
		})
	}, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	if !plan.Content.equal(&found) {
		w.logf("the leader writes, as it %s", strings.Join(plan.Did, ", "))
		w.write(plan.Content)
		w.cas += count(plan.Did, "made a CA")
		w.leaves += count(plan.Did, "made a serving certificate")
		if len(plan.Did) == 0 {
			w.mended++
		}
	}
	if !Succeeds(&w.leader.held, &plan.Content, w.now) {
		w.t.Errorf("the leader refuses what it has written")
	}
	w.leader.held, w.leader.seen = plan.Content, len(w.secret)-1
	w.look, w.woken = plan.Look, w.events()
}

// publish is what Bundles.Run does.
func (w *world) publish() {
	for i, o := range w.objects {
		if last := o[len(o)-1].content; string(last.Bundle) != string(w.leader.held.Bundle) && w.r.Intn(3) > 0 {
			w.objects[i] = append(o, version{w.leader.held, w.now})
			w.logf("object %d has the bundle of %s", i, w.show(&w.leader.held))
		}
	}
}

// events tells one state of what wakes the leader from another.
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

// accident is what somebody does to the Secret.
func (w *world) accident() string {
	c := w.latest()
	switch w.r.Intn(8) {
	case 0:
		w.write(Content{})
		return "deleted"
	case 1:
		c.Cert = []byte("x")
		w.write(c)
		return "tls.crt spoilt"
	case 2:
		c.Bundle = nil
		w.write(c)
		return "ca.crt spoilt"
	case 3:
		c.CAKeys = nil
		w.write(c)
		return "ca.key deleted"
	case 4:
		c.Published = ""
		w.write(c)
		return "annotation deleted"
	default:
		w.write(w.secret[w.r.Intn(len(w.secret))].content)
		return "restored"
	}
}

func (w *world) check(what string) {
	for i, r := range w.replicas {
		if !r.ready {
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

// TestWhateverIsServedIsTrusted walks over many lifetimes of CAs, with replicas that see the
// Secret late, start, and take over from each other at any time, kube-apiservers that see
// caBundle late, and people who delete, spoil and restore the Secret.
func TestWhateverIsServedIsTrusted(t *testing.T) {
	for _, p := range []Profile{
		{Names: usual.Names, Lifetime: time.Minute, CALifetime: 2 * time.Minute},
		{Names: usual.Names, Lifetime: 5 * time.Hour, CALifetime: 10 * time.Hour},
		{Names: usual.Names, Lifetime: day, CALifetime: 5 * day},
	} {
		for _, accidents := range []bool{false, true} {
			var failed []uint64
			if accidents && p.Lifetime == time.Minute {
				// The overlap was cut short by a part of a second.
				failed = []uint64{1795303394832300666}
			}
			t.Run(fmt.Sprintf("%v of %v, accidents: %v", p.Lifetime, p.CALifetime, accidents), func(t *testing.T) {
				seeds.Each(t, 1, func(t *testing.T, seed uint64) { walk(t, p, accidents, seed) }, failed...)
			})
		}
	}
}

func walk(t *testing.T, p Profile, accidents bool, seed uint64) {
	t.Helper()
	w := &world{t: t, r: rand.New(rand.NewSource(int64(seed))), p: p, now: start, verified: map[string]time.Time{}}
	first := next(t, p, Content{}, nowhere, w.now).Content
	w.write(first)
	for range 3 {
		r := &witness{}
		w.load(r)
		w.replicas = append(w.replicas, r)
	}
	w.objects = [][]version{{{first, w.now.Add(-day)}}, {{first, w.now.Add(-day)}}}
	// A certificate lives for some hundred steps, so that all that may take time in it can.
	step := p.Lifetime / 100
	what, quiet := "no accident", w.now
	for range 2000 {
		w.now = w.now.Add(time.Duration(1 + w.r.Int63n(int64(step))))
		// Whoever deletes ca.key again and again gets a certificate by a CA that is not
		// published for long enough, as that is better than one that has expired.
		if accidents && w.now.After(quiet) && w.r.Intn(50) == 0 {
			what, quiet = fmt.Sprintf("%s after %v", w.accident(), w.now.Sub(start)), w.now.Add(p.Lifetime/4)
		}
		if w.r.Intn(60) == 0 {
			w.load(w.replicas[w.r.Intn(len(w.replicas))])
		}
		for _, r := range w.replicas {
			if r.ready {
				w.watch(r)
			} else {
				w.load(r)
			}
		}
		if w.leader == nil || !w.leader.ready || w.r.Intn(50) == 0 {
			w.leader = w.replicas[w.r.Intn(len(w.replicas))]
		}
		if w.leader.ready && w.r.Intn(3) > 0 { // else it is slow, or there is none
			w.lead()
			w.publish()
		}
		w.check(what)
	}
	t.Logf("in %v: %d CAs, %d serving certificates, mended %d times", w.now.Sub(start), w.cas, w.leaves, w.mended)
	if w.cas < 2 || w.leaves < 8 || accidents && w.mended < 5 {
		t.Errorf("it has not seen much: %d CAs, %d serving certificates, mended %d times", w.cas, w.leaves, w.mended)
	}
	if !accidents && cas(w.latest()) > 3 {
		t.Errorf("there are %d CAs in the end", cas(w.latest()))
	}
}
