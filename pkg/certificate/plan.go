// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Profile describes the certificates to issue.
type Profile struct {
	// Names are the DNS names of the serving certificate. The first is its common name.
	Names []string
	// Lifetime is the lifetime of the serving certificate, which is renewed when a third of it
	// is left.
	Lifetime time.Duration
	// CALifetime is the lifetime of the CA.
	CALifetime time.Duration
}

// MinLifetime is the minimum lifetime of a serving certificate. The times in a
// certificate have a resolution of a second, and a renewal takes some seconds.
const MinLifetime = 10 * time.Second

// Validate returns everything that is wrong with the lifetimes.
func (p *Profile) Validate() error {
	var errs []error
	if p.Lifetime < MinLifetime {
		errs = append(errs, fmt.Errorf("the lifetime of the serving certificate is %v, and must be at least %v", p.Lifetime, MinLifetime))
	}
	if p.CALifetime < 2*p.Lifetime {
		errs = append(errs, fmt.Errorf("the lifetime of the CA is %v, and must be at least twice the lifetime of the serving certificate, which is %v", p.CALifetime, p.Lifetime))
	}
	return errors.Join(errs...)
}

// maxSkew is how far clocks may be apart.
const maxSkew = 5 * time.Minute

// skew is how far the clocks of peers may be behind ours.
func (p *Profile) skew() time.Duration { return min(maxSkew, p.Lifetime/20) }

// Overlap is how long a new CA is trusted before it signs a serving certificate, so that
// every kube-apiserver can learn of it.
func (p *Profile) Overlap() time.Duration { return min(time.Hour, p.CALifetime/20) }

// succession is how much of the lifetime of a CA is left when it gets a successor. It is
// more than the serving certificate may live, so that none needs to be cut short, by more
// than the overlap.
func (p *Profile) succession() time.Duration { return p.Lifetime + p.CALifetime/10 }

// renewal is when a certificate is to be renewed.
func renewal(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// lastChance is when it must be renewed, even if some clients do not trust the new one yet: soon
// none will trust the current one.
func lastChance(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 10)
}

// Plan is what to do.
type Plan struct {
	// Content is what the Secret should hold.
	Content Content
	// Did describes what is new in it.
	Did []string
	// Look is when to check again, if nothing happens until then.
	Look time.Time
}

// Next decides what the Secret should hold next. inPlace reports whether a CA is trusted
// in every object of the cluster that names one.
//
// A CA is replaced in phases, all of which can be seen in the Secret: it gets a
// successor, which is trusted beside it; that one is published; when the overlap is
// over, it signs the next serving certificate, and the key of the one before is
// forgotten; and when all certificates that the one before has signed have expired, so
// that no replica can serve by it, it is no longer trusted.
func (p *Profile) Next(c Content, inPlace func(ca *x509.Certificate) bool, now time.Time) (Plan, error) {
	var plan Plan
	s := parse(&c, now)
	newest := p.newest(s)
	if newest < 0 || s.authorities[newest].cert.NotAfter.Sub(now) <= p.succession() {
		a, err := p.newAuthority(now)
		if err != nil {
			return Plan{}, err
		}
		s.authorities = append(s.authorities, a)
		newest = len(s.authorities) - 1
		plan.Did = append(plan.Did, "created a CA")
	}
	ca := s.authorities[newest].cert
	there := inPlace(ca)
	if there && s.published != Fingerprint(ca) {
		s.published, s.since = Fingerprint(ca), roundUp(now)
		plan.Did = append(plan.Did, "recorded that the newest CA is published")
	}
	trustedAt := never
	if there && s.published == Fingerprint(ca) {
		trustedAt = s.since.Add(p.Overlap())
	}

	if signer := p.signer(s, newest, trustedAt, inPlace, now); signer >= 0 {
		fresh, err := p.newLeaf(s.authorities[signer], now)
		if err != nil {
			return Plan{}, err
		}
		old := s.leaf
		s.leaf = fresh
		if old != nil {
			s.remember(old.chain, now)
		}
		for i := range signer {
			s.authorities[i].key = nil
		}
		plan.Did = append(plan.Did, "issued a serving certificate")
	}
	if s.trim() {
		plan.Did = append(plan.Did, "dropped CAs whose certificates no replica serves")
	}

	plan.Look = p.look(s, ca, now)
	var err error
	plan.Content, err = s.content()
	return plan, err
}

// newest returns the index of the newest CA that can sign for the names of the profile, or -1.
func (p *Profile) newest(s *parsed) int {
	for i, a := range slices.Backward(s.authorities) {
		if a.key != nil && maySign(a.cert, p.Names) {
			return i
		}
	}
	return -1
}

// roundUp returns the first whole second that is not before a time. The Secret notes when a CA
// was published in seconds, and a time that is too early would cut the overlap short: by up to
// a second, which is all of it for the shortest lifetimes.
func roundUp(t time.Time) time.Time {
	if second := t.Truncate(time.Second); second.Before(t) {
		return second.Add(time.Second)
	}
	return t
}

// never is the time at which an unpublished CA will be trusted.
var never = time.Unix(1<<40, 0)

// signer returns which CA should sign a serving certificate now, or -1. All clients will
// trust the newest at the given time.
func (p *Profile) signer(s *parsed, newest int, trustedAt time.Time, inPlace func(*x509.Certificate) bool, now time.Time) int {
	trusted := !now.Before(trustedAt)
	// No client trusts a server without a certificate for the name by which it is called.
	useless := s.leaf == nil || s.leaf.cert().VerifyHostname(p.Names[0]) != nil
	// While the newest is not trusted, the previous one can sign.
	older := -1
	for i := range newest {
		if a := s.authorities[i]; a.key != nil && maySign(a.cert, p.Names) && a.cert.NotAfter.Sub(now) > p.Lifetime/10 &&
			(useless || slices.ContainsFunc(s.leaf.roots, a.cert.Equal) || p.overlapped(s, a.cert, inPlace, now)) {
			older = i
		}
	}
	switch {
	case useless:
		if !trusted && older >= 0 {
			return older
		}
		return newest
	case !p.due(s, now):
		return -1
	case trusted:
		return newest
	case older >= 0 && p.gains(s.leaf.cert(), s.authorities[older].cert, now):
		return older
	case !now.Before(lastChance(s.leaf.cert())) && trustedAt.After(s.leaf.cert().NotAfter):
		return newest
	}
	return -1
}

// overlapped reports whether a CA is in place, and the Secret says that it has been published for
// the overlap.
func (p *Profile) overlapped(s *parsed, ca *x509.Certificate, inPlace func(*x509.Certificate) bool, now time.Time) bool {
	return s.published == Fingerprint(ca) && inPlace(ca) && !now.Before(s.since.Add(p.Overlap()))
}

// inherit returns the content with which a leader continues. An annotation from before its term,
// saying that a CA is published, may have been restored from a backup and no longer be true. So
// it does not count if the CA was missing somewhere when the term began.
func inherit(c Content, began time.Time, missing func(ca *x509.Certificate) bool, now time.Time) Content {
	s := parse(&c, now)
	for _, a := range s.authorities {
		if Fingerprint(a.cert) == s.published && s.since.Before(began) && missing(a.cert) {
			c.Published = ""
		}
	}
	return c
}

// due reports whether the serving certificate has to be replaced.
func (p *Profile) due(s *parsed, now time.Time) bool {
	cert := s.leaf.cert()
	return !now.Before(renewal(cert)) || !p.named(cert) ||
		cert.NotAfter.After(now.Add(p.Lifetime+p.skew())) || // the lifetime has been shortened
		!slices.ContainsFunc(s.authorities, func(a authority) bool {
			return a.key != nil && slices.ContainsFunc(s.leaf.roots, a.cert.Equal)
		}) // its CA has been replaced, or was never ours
}

func (p *Profile) named(cert *x509.Certificate) bool {
	return slices.Equal(slices.Sorted(slices.Values(cert.DNSNames)), slices.Sorted(slices.Values(p.Names)))
}

// gains reports whether a CA can sign a better certificate than the given one.
func (p *Profile) gains(cert, ca *x509.Certificate, now time.Time) bool {
	return !p.named(cert) || earlier(now.Add(p.Lifetime), ca.NotAfter).Sub(cert.NotAfter) > p.Lifetime/10
}

// look returns when something is to be done even if nothing happens.
func (p *Profile) look(s *parsed, newest *x509.Certificate, now time.Time) time.Time {
	times := []time.Time{newest.NotAfter.Add(-p.succession()), renewal(s.leaf.cert()), lastChance(s.leaf.cert())}
	if s.published != "" {
		times = append(times, s.since.Add(p.Overlap()))
	}
	for _, old := range s.previous {
		times = append(times, old.chain[0].NotAfter)
	}
	for _, a := range s.authorities {
		times = append(times, a.cert.NotAfter)
	}
	next := s.leaf.cert().NotAfter
	for _, t := range times {
		if t.After(now) {
			next = earlier(next, t)
		}
	}
	return next
}

// succeeds reports whether a replica that serves with one content, h, may switch to another,
// f. It never goes back, nor switches to a certificate that clients may not trust yet. A
// Secret that it refuses is repaired.
//
// A replica also holds CAs that it has only seen, in Secrets that it refused. They do not
// count: the leader has yet to publish them.
func (p *Profile) succeeds(h, f *parsed, now time.Time) bool {
	if f.leaf == nil {
		return false
	}
	if h.leaf == nil || h.leaf.cert().Equal(f.leaf.cert()) {
		return true
	}
	ours, theirs := h.leaf.cert(), f.leaf.cert()
	if ours.NotBefore.After(now.Add(maxSkew)) {
		return true // it was made by a clock that is far ahead, and no client trusts it yet
	}
	newer := !theirs.NotBefore.Before(ours.NotBefore)
	switch {
	case newer && (h.signs(f.leaf) || p.trusted(f, now)):
		return true
	case !f.remembers(ours):
		return false
	case newer && !now.Before(lastChance(ours)):
		return true // the leader had no better choice
	}
	// A replica that found no certificate issued one of these two, and replicas that serve with
	// the other wrote a Secret with both. So that all agree, the one that was published first
	// wins, which is not the one that was just issued.
	return !p.trusted(h, now) && f.precedes(h)
}

// signs reports whether a certificate is from a CA that signs here, or from the CA of the
// certificate that is served.
func (p *parsed) signs(l *leaf) bool {
	return slices.ContainsFunc(l.roots, func(ca *x509.Certificate) bool {
		return slices.ContainsFunc(p.leaf.roots, ca.Equal) ||
			slices.ContainsFunc(p.authorities, func(a authority) bool { return a.key != nil && a.cert.Equal(ca) })
	})
}

// trusted reports whether the CA of the serving certificate has been published for the overlap,
// now or when it signed.
func (p *Profile) trusted(s *parsed, now time.Time) bool {
	at := s.publishedSince().Add(p.Overlap())
	return !now.Before(at) || !s.leaf.cert().NotBefore.Add(p.skew()).Before(at)
}

// publishedSince returns an upper bound of when the CA of the serving certificate was published:
// CAs are published together with all older ones.
func (p *parsed) publishedSince() time.Time {
	for _, a := range slices.Backward(p.authorities) {
		if Fingerprint(a.cert) == p.published {
			return p.since
		}
		if slices.ContainsFunc(p.leaf.roots, a.cert.Equal) {
			break
		}
	}
	return never
}

// precedes reports whether a content was published before another, or issued, if neither was
// published.
func (p *parsed) precedes(other *parsed) bool {
	if ours, theirs := p.publishedSince(), other.publishedSince(); !ours.Equal(theirs) {
		return ours.Before(theirs)
	}
	return p.leaf.cert().NotBefore.Before(other.leaf.cert().NotBefore)
}

// combine returns the content to continue with, given what this replica holds and what was
// found in the Secret: users may have deleted it, damaged it, or restored it from a backup,
// and another replica may have created a new one then.
//
// The result has the certificates of both that have not expired, and their CAs. So replicas
// that each repair the Secret with what they hold agree after one round.
//
// It also reports whether the found certificate succeeds the held one.
func (p *Profile) combine(held, found *Content, now time.Time) (c Content, accepted bool, err error) {
	h, f := parse(held, now), parse(found, now)
	var base, other *parsed
	switch {
	case p.succeeds(h, f, now):
		base, other, accepted = f, h, true
	case h.leaf != nil || f.leaf == nil && h.newest() >= 0:
		base, other = h, f
	default:
		return *found, false, nil
	}
	base.add(other, now)
	c, err = base.content()
	return c, accepted, err
}

// add adds the certificates of another content and their CAs, because a replica may serve
// with them.
func (p *parsed) add(other *parsed, now time.Time) {
	var served []past
	if other.leaf != nil {
		served = append(served, past{other.leaf.chain, other.leaf.roots})
	}
	for _, s := range append(served, other.previous...) {
		for _, ca := range s.roots {
			if !p.trusts(ca) {
				// Before the others, because the newest comes last.
				p.authorities = slices.Insert(p.authorities, 0, authority{cert: ca})
			}
		}
		p.remember(s.chain, now)
	}
}

// adopt returns what a replica holds once it has written a content to the Secret. It switches
// to the certificate in it unconditionally: Next has decided to, and the content may not show why.
func adopt(held, written *Content, now time.Time) (Content, error) {
	w := parse(written, now)
	w.add(parse(held, now), now)
	return w.content()
}

// take returns what a replica holds once it has found a content in the Secret, whether it
// switches to the certificate in it, and whether the Secret lacks something that the replica
// holds.
func (p *Profile) take(held, found *Content, now time.Time) (holds Content, accepted, lacks bool, err error) {
	if held.equal(found) {
		return *held, held.Usable(now), false, nil
	}
	if holds, accepted, err = p.combine(held, found, now); err != nil {
		return Content{}, false, false, err
	}
	if !holds.Usable(now) {
		holds = *held
	}
	lacks, err = p.lacks(held, found, now)
	return holds, accepted, lacks, err
}

// lacks reports whether the Secret, as it was found, lacks a certificate that some replica may
// serve, or its CA. Certificates that expire within the skew are not worth a write, because
// peers whose clocks are ahead have dropped them.
func (p *Profile) lacks(held, found *Content, now time.Time) (bool, error) {
	now = now.Add(p.skew())
	if !held.Usable(now) {
		return false, nil
	}
	c, _, err := p.combine(held, found, now)
	if err != nil {
		return false, err
	}
	// In the canonical form, because no other difference matters.
	as, err := parse(found, now).content()
	return !c.equal(&as), err
}
