// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/test/seeds"
)

const (
	day     = 24 * time.Hour
	service = "configdep-apiserver.configdep-system.svc"
)

var (
	start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	usual = Profile{Names: []string{service, service + ".cluster.local"}, Lifetime: 90 * day, CALifetime: 5 * 365 * day}
)

func next(t *testing.T, p Profile, c Content, now time.Time) Content {
	t.Helper()
	c, err := p.Next(c, now)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verify verifies the serving certificate as a client does: by the name of the Service, with a bundle only.
func verify(c Content, bundle string, now time.Time) error {
	pair, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: service, Roots: roots, CurrentTime: now})
	return err
}

// Any client may write the Secret: each state of it has a next one.
func TestNext(t *testing.T) {
	const caDue = 1217 * day
	first := next(t, usual, Content{}, start)
	renewed := next(t, usual, first, start.Add(1200*day))
	added := next(t, usual, renewed, start.Add(caDue))
	switched := next(t, usual, added, start.Add(caDue+time.Hour))
	stranger, another := next(t, usual, Content{}, start), next(t, usual, Content{}, start)
	unlimited := usual
	unlimited.Names = nil
	wide, wideKey, err := unlimited.newCA(start)
	if err != nil {
		t.Fatal(err)
	}
	widely, widelyKey, err := usual.newLeaf(&wide, start)
	if err != nil {
		t.Fatal(err)
	}
	otherNames := Profile{Names: []string{"other.configdep-system.svc"}, Lifetime: usual.Lifetime, CALifetime: usual.CALifetime}
	with := func(c Content, change func(*Content)) Content {
		change(&c)
		return c
	}
	type outcome struct {
		CA, Certificate bool // whether there is a new one
		CAs             int
		By              int // the index of the CA that has issued the certificate
	}
	for name, tt := range map[string]struct {
		content Content
		at      time.Duration // since start
		want    outcome
	}{
		"empty":                            {Content{}, 0, outcome{true, true, 1, 0}},
		"valid":                            {first, 59 * day, outcome{CAs: 1}},
		"the certificate is due":           {first, 60 * day, outcome{Certificate: true, CAs: 1}},
		"the certificate has expired":      {first, 91 * day, outcome{Certificate: true, CAs: 1}},
		"the CA is almost due":             {renewed, caDue - day, outcome{CAs: 1}},
		"the CA is due":                    {renewed, caDue, outcome{CA: true, CAs: 2, By: 1}},
		"a CA was added":                   {added, caDue + time.Hour - time.Second, outcome{CAs: 2, By: 1}},
		"a CA was added an hour ago":       {added, caDue + time.Hour, outcome{Certificate: true, CAs: 2}},
		"the certificate is by the new CA": {switched, caDue + 2*time.Hour - time.Second, outcome{CAs: 2}},
		"the same, an hour later":          {switched, caDue + 2*time.Hour, outcome{CAs: 1}},
		"the CA has expired":               {first, 6 * 365 * day, outcome{true, true, 1, 0}},

		"no key of the CA":              {with(first, func(c *Content) { c.CAKey = "" }), day, outcome{CA: true, CAs: 2, By: 1}},
		"another key of the CA":         {with(first, func(c *Content) { c.CAKey = stranger.CAKey }), day, outcome{CA: true, CAs: 2, By: 1}},
		"no key of a CA that was added": {with(added, func(c *Content) { c.CAKey = "" }), caDue + time.Minute, outcome{CA: true, CAs: 2, By: 1}},
		"no CA":                         {with(first, func(c *Content) { c.Bundle = "" }), day, outcome{true, true, 1, 0}},
		"a damaged CA":                  {with(first, func(c *Content) { c.Bundle = "x" + c.Bundle[20:] }), day, outcome{true, true, 1, 0}},
		"another CA first":              {with(first, func(c *Content) { c.Bundle = stranger.Bundle + c.Bundle }), day, outcome{CA: true, CAs: 2, By: 1}},
		"other CAs": {with(first, func(c *Content) { c.Bundle += stranger.Bundle + another.Bundle + strings.Repeat("x", 1e6) }), day,
			outcome{CAs: 1}},
		"other CAs, while one may be needed": {with(added, func(c *Content) { c.Bundle += stranger.Bundle + another.Bundle }), caDue + time.Minute,
			outcome{CAs: 2, By: 1}},
		"other CAs, soon after a change":   {with(switched, func(c *Content) { c.Bundle += stranger.Bundle }), caDue + 61*time.Minute, outcome{CAs: 2}},
		"no certificate":                   {with(first, func(c *Content) { c.Cert = "" }), day, outcome{Certificate: true, CAs: 1}},
		"another key of the certificate":   {with(first, func(c *Content) { c.Key = stranger.Key }), day, outcome{Certificate: true, CAs: 1}},
		"another certificate":              {with(first, func(c *Content) { c.Cert, c.Key = stranger.Cert, stranger.Key }), day, outcome{Certificate: true, CAs: 1}},
		"no certificate, a CA was added":   {with(added, func(c *Content) { c.Cert = "" }), caDue + time.Minute, outcome{Certificate: true, CAs: 2}},
		"a private key in the bundle":      {with(first, func(c *Content) { c.Bundle = c.CAKey + c.Bundle + c.Key }), day, outcome{CAs: 1}},
		"everything is for another name":   {next(t, otherNames, Content{}, start), day, outcome{true, true, 1, 0}},
		"a CA that may sign for any name":  {Content{encode(wide.Leaf), wideKey, encode(widely.Leaf), widelyKey}, day, outcome{CA: true, CAs: 2, By: 1}},
		"issued by a clock that was ahead": {next(t, usual, Content{}, start.Add(day)), 0, outcome{true, true, 1, 0}},
		"the same, by less than the skew":  {next(t, usual, Content{}, start.Add(5*time.Minute)), 0, outcome{CAs: 1}},
		"restored from a backup":           {first, caDue, outcome{true, true, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			now := start.Add(tt.at)
			got := next(t, usual, tt.content, now)
			cas := parseCerts([]byte(got.Bundle))
			by := -1
			for i, ca := range cas {
				if verify(got, encode(ca), now.Add(usual.skew())) == nil {
					by = i
				}
			}
			if diff := cmp.Diff(tt.want, outcome{got.CAKey != tt.content.CAKey, got.Cert != tt.content.Cert, len(cas), by}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.Bundle != encode(cas...) || !usual.usable(got, now) {
				t.Errorf("usable: %v, bundle %q", usual.usable(got, now), got.Bundle)
			}
			if ca, err := tls.X509KeyPair([]byte(got.Bundle), []byte(got.CAKey)); err != nil || !usual.maySign(ca.Leaf, now) {
				t.Errorf("the first CA cannot sign: %v", err)
			}
			if next(t, usual, got, now) != got {
				t.Error("the next state has another next one at the same time")
			}
		})
	}
}

// No client that trusts the published bundle is refused by a replica, through the lifetimes of several CAs, while users
// replace the CA. Leaders alternate, clocks differ, and replicas and clients see the Secret late.
func TestNext_KeepsClientsTrusting(t *testing.T) {
	seeds.Each(t, 3, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
		p := usual
		p.Lifetime = []time.Duration{MinLifetime, 10 * time.Hour, day}[seed%3]
		p.CALifetime = 3*p.Lifetime + upTo(p.Lifetime)
		late := p.overlap() / 2

		type version struct {
			Content
			at time.Time
		}
		secret := []version{{next(t, p, Content{}, start), start}}
		latest := func() Content { return secret[len(secret)-1].Content }
		// see returns which version a replica or client sees that has seen another one.
		see := func(seen int, now time.Time) int {
			for seen+1 < len(secret) && (now.Sub(secret[seen+1].at) >= late || r.IntN(4) == 0) {
				seen++
			}
			return seen
		}
		type replica struct {
			clock  time.Duration
			seen   int
			served Content
		}
		var replicas [3]replica
		for i := range replicas {
			replicas[i] = replica{clock: upTo(2*p.skew()) - p.skew(), served: latest()}
		}
		published, cas, leaves := 0, 1, 1
		for now, end := start, start.Add(4*p.CALifetime); now.Before(end); now = now.Add(upTo(late)) {
			before := latest()
			if r.IntN(40) == 0 && len(parseCerts([]byte(before.Bundle))) == 1 { // a user replaces the CA
				before.CAKey = ""
			}
			if after := next(t, p, before, now.Add(replicas[r.IntN(3)].clock)); after != latest() {
				if after.CAKey != before.CAKey {
					cas++
				}
				if after.Cert != before.Cert {
					leaves++
				}
				secret = append(secret, version{after, now})
			}
			published = see(published, now)
			for i := range replicas {
				o := &replicas[i]
				if seen := see(o.seen, now); seen != o.seen {
					o.seen = seen
					if found := secret[seen].Content; p.usable(found, now.Add(o.clock)) {
						o.served = found
					}
				}
				if err := verify(o.served, secret[published].Bundle, now); err != nil {
					t.Fatalf("after %v of lifetimes of %v and %v: replica %d is refused: %v", now.Sub(start), p.Lifetime, p.CALifetime, i, err)
				}
			}
			if n := len(parseCerts([]byte(latest().Bundle))); n > 2 {
				t.Fatalf("the bundle has %d CAs", n)
			}
		}
		if cas < 5 || leaves < 12 {
			t.Errorf("got %d CAs and %d certificates", cas, leaves)
		}
	})
}
