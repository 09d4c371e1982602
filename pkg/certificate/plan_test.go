// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const day = 24 * time.Hour

var (
	start   = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	service = "configdep-apiserver.configdep-system.svc"
	usual   = Profile{Names: []string{service, service + ".cluster.local"}, Lifetime: 90 * day, CALifetime: 5 * 365 * day}
)

func everywhere(*x509.Certificate) bool { return true }

// next takes one step.
func next(t *testing.T, p Profile, c Content, inPlace func(*x509.Certificate) bool, now time.Time) Plan {
	t.Helper()
	plan, err := p.Next(c, inPlace, now)
	if err != nil {
		t.Fatal(err)
	}
	if !plan.Look.After(now) {
		t.Errorf("plan at %v: Look = %v, want a later time", now, plan.Look)
	}
	if err := serves(&plan.Content, plan.Content.Bundle, now); err != nil {
		t.Errorf("plan at %v, which did %q: %v", now, plan.Did, err)
	}
	again, err := p.Next(plan.Content, inPlace, now)
	if err != nil || len(again.Did) > 0 || !again.Content.equal(&plan.Content) {
		t.Errorf("a second plan at once did %q after %q (error %v)", again.Did, plan.Did, err)
	}
	return plan
}

// serves verifies the serving certificate as the aggregator does: by the name of the Service
// and with only a bundle.
func serves(c *Content, bundle []byte, now time.Time) error {
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: service, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func certOf(t *testing.T, c Content) *x509.Certificate {
	t.Helper()
	certs := parseCerts(c.Cert)
	if len(certs) == 0 {
		t.Fatal("there is no certificate")
	}
	return certs[0]
}

func cas(c Content) int { return len(parseCerts(c.Bundle)) }

func TestTheFirstCertificate(t *testing.T) {
	plan := next(t, usual, Content{}, nowhere, start)
	c := plan.Content
	cert, ca := certOf(t, c), parseCerts(c.Bundle)
	if diff := cmp.Diff(usual.Names, cert.DNSNames); diff != "" || len(ca) != 1 {
		t.Errorf("got %d CAs; names (-want +got):\n%s", len(ca), diff)
	}
	if got := cert.NotAfter.Sub(start); got != 90*day {
		t.Errorf("lifetime of the certificate = %v", got)
	}
	if got := ca[0].NotAfter.Sub(start); got != 5*365*day {
		t.Errorf("lifetime of the CA = %v", got)
	}
	if cert.IsCA || !ca[0].IsCA || cert.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("a certificate %+v of %+v", cert, ca[0])
	}
	// The clocks of clients may be slightly behind.
	if err := serves(&c, c.Bundle, start.Add(-4*time.Minute)); err != nil {
		t.Error(err)
	}
	if want := cert.NotAfter.Add(-90*day/3 - time.Minute); plan.Look.Before(want.Add(-time.Hour)) || plan.Look.After(want.Add(time.Hour)) {
		t.Errorf("Look = %v, want the time when a third of the lifetime is left", plan.Look)
	}
	var secret corev1.Secret
	c.putInto(&secret)
	if back := ContentOf(&secret); !back.equal(&c) {
		t.Error("the content changes when it is written to a Secret and read again")
	}
}

func TestNothingIsDoneForAWhile(t *testing.T) {
	c := next(t, usual, Content{}, nowhere, start).Content
	c = next(t, usual, c, everywhere, start.Add(time.Minute)).Content // notes that it is published
	for at := start.Add(time.Hour); at.Before(start.Add(59 * day)); at = at.Add(day) {
		if plan := next(t, usual, c, everywhere, at); len(plan.Did) > 0 || !plan.Content.equal(&c) {
			t.Fatalf("after %v it did %q", at.Sub(start), plan.Did)
		}
	}
}

// CAs are replaced in the phases that the package comment describes.
func TestTheLifeOfACA(t *testing.T) {
	p := usual
	now := start
	c := next(t, p, Content{}, nowhere, now).Content
	old := parseCerts(c.Bundle)[0]
	var told []string
	trusted := map[string]bool{Fingerprint(old): true}
	inPlace := func(ca *x509.Certificate) bool { return trusted[Fingerprint(ca)] }
	for now.Before(start.Add(1900 * day)) {
		plan := next(t, p, c, inPlace, now)
		c = plan.Content
		signer := "old"
		if _, err := certOf(t, c).Verify(x509.VerifyOptions{Roots: poolOf(old), CurrentTime: now}); err != nil {
			signer = "new"
		}
		if len(plan.Did) > 0 && now.Sub(start) > 1450*day && len(told) < 6 {
			told = append(told, fmt.Sprintf("day %d: %s; %d CAs, %d keys, served by the %s one",
				now.Sub(start)/day, strings.Join(plan.Did, ", "), cas(c), len(parseKeys(c.CAKeys)), signer))
		}
		if cas(c) == 2 && len(trusted) == 1 {
			// Publishing takes a minute.
			trusted[Fingerprint(parseCerts(c.Bundle)[1])] = true
			now = now.Add(time.Minute)
		} else {
			now = plan.Look
		}
	}
	want := []string{
		"day 1499: issued a serving certificate; 1 CAs, 1 keys, served by the old one",
		"day 1552: created a CA; 2 CAs, 2 keys, served by the old one",
		"day 1552: recorded that the newest CA is published; 2 CAs, 2 keys, served by the old one",
		"day 1559: issued a serving certificate; 2 CAs, 1 keys, served by the new one",
		"day 1589: dropped CAs whose certificates no replica serves; 1 CAs, 1 keys, served by the new one",
		"day 1619: issued a serving certificate; 1 CAs, 1 keys, served by the new one",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func poolOf(certs ...*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// A new CA signs nothing before it has been published for the overlap.
func TestANewCAWaits(t *testing.T) {
	p := usual
	c := next(t, p, Content{}, nowhere, start).Content
	c.CAKeys = nil // a user wants another CA
	before := certOf(t, c)
	made := next(t, p, c, nowhere, start.Add(time.Hour))
	if diff := cmp.Diff([]string{"created a CA"}, made.Did); diff != "" || cas(made.Content) != 2 {
		t.Fatalf("%d CAs, (-want +got):\n%s", cas(made.Content), diff)
	}
	for _, tt := range []struct {
		name    string
		inPlace func(*x509.Certificate) bool
		after   time.Duration
		did     []string
	}{
		{"the CA is not published", nowhere, day, nil},
		{"the CA is published", everywhere, day, []string{"recorded that the newest CA is published"}},
		{"the CA has not been published long enough", everywhere, day + 59*time.Minute, nil},
		{"the CA was removed again", nowhere, day + 2*time.Hour, nil},
		{"the CA has been published long enough", everywhere, day + 3*time.Hour, []string{"issued a serving certificate"}},
		{"a replica may still serve with the previous certificate", everywhere, 89 * day, []string{"issued a serving certificate"}},
		{"no replica may serve with the previous certificate", everywhere, 91 * day, []string{"dropped CAs whose certificates no replica serves"}},
	} {
		plan := next(t, p, made.Content, tt.inPlace, start.Add(tt.after))
		if diff := cmp.Diff(tt.did, plan.Did); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", tt.name, diff)
		}
		if !slices.Contains(plan.Did, "dropped CAs whose certificates no replica serves") && cas(plan.Content) != 1 {
			if _, err := before.Verify(x509.VerifyOptions{Roots: poolOf(parseCerts(plan.Content.Bundle)...), CurrentTime: start}); err != nil {
				t.Errorf("%s: the previous certificate is no longer trusted", tt.name)
			}
		}
		made = plan
	}
	if cas(made.Content) != 1 || len(made.Content.Previous) == 0 {
		t.Errorf("got %d CAs at the end", cas(made.Content))
	}
}

// If the new CA is not published, the certificate is renewed by the previous CA for as long as that
// is valid, and finally by the new one, because no client would trust the other.
func TestCAThatIsNotPublished(t *testing.T) {
	p := Profile{Names: usual.Names, Lifetime: time.Hour, CALifetime: 10 * time.Hour}
	c := next(t, p, Content{}, nowhere, start).Content
	now, first := start, parseCerts(c.Bundle)[0]
	for now.Before(start.Add(40 * time.Hour)) {
		plan := next(t, p, c, nowhere, now)
		if left := certOf(t, plan.Content).NotAfter.Sub(now); left < 3*time.Minute {
			t.Errorf("after %v only %v are left", now.Sub(start), left)
		}
		c, now = plan.Content, plan.Look
		_, err := certOf(t, c).Verify(x509.VerifyOptions{Roots: poolOf(first), CurrentTime: now.Add(-time.Second)})
		if now.Before(start.Add(9*time.Hour)) && err != nil {
			t.Errorf("after %v the certificate is not by the first CA", now.Sub(start))
		}
	}
}

func TestChangesOfFlags(t *testing.T) {
	c := next(t, usual, Content{}, nowhere, start).Content
	c = next(t, usual, c, everywhere, start).Content
	at := start.Add(2 * time.Hour)
	for name, tt := range map[string]struct {
		p   Profile
		did []string
	}{
		"none":                       {usual, nil},
		"names in another order":     {Profile{[]string{usual.Names[1], usual.Names[0]}, usual.Lifetime, usual.CALifetime}, nil},
		"one name less":              {Profile{[]string{service}, usual.Lifetime, usual.CALifetime}, []string{"issued a serving certificate"}},
		"another name":               {Profile{[]string{service, "other"}, usual.Lifetime, usual.CALifetime}, []string{"created a CA", "recorded that the newest CA is published"}},
		"a name below":               {Profile{[]string{service, "x." + service}, usual.Lifetime, usual.CALifetime}, []string{"issued a serving certificate"}},
		"a shorter life":             {Profile{usual.Names, day, usual.CALifetime}, []string{"issued a serving certificate"}},
		"a longer life":              {Profile{usual.Names, 100 * day, usual.CALifetime}, nil},
		"too long a life for the CA": {Profile{usual.Names, 2000 * day, 5000 * day}, []string{"created a CA", "recorded that the newest CA is published"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := next(t, tt.p, c, everywhere, at)
			if diff := cmp.Diff(tt.did, plan.Did); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is in the Secret, the plan results in a valid certificate, and certificates that may be in use
// stay trusted.
func TestInvalidContent(t *testing.T) {
	good := next(t, usual, Content{}, nowhere, start).Content
	good = next(t, usual, good, everywhere, start).Content
	other := next(t, usual, Content{}, nowhere, start).Content
	garbage := []byte("-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n")
	with := func(change func(*Content)) Content {
		c := good
		change(&c)
		return c
	}
	at := start.Add(time.Hour)
	for name, tt := range map[string]struct {
		c      Content
		keeps  bool // the served certificate is kept
		signed bool // a new certificate is by the same CA
	}{
		"nothing":                         {Content{}, false, false},
		"no certificate":                  {with(func(c *Content) { c.Cert = nil }), false, true},
		"no key":                          {with(func(c *Content) { c.Key = nil }), false, true},
		"a certificate of garbage":        {with(func(c *Content) { c.Cert = garbage }), false, true},
		"no PEM at all":                   {with(func(c *Content) { c.Cert = []byte("\x00\xff") }), false, true},
		"the key of another":              {with(func(c *Content) { c.Key = other.Key }), false, true},
		"by another CA":                   {with(func(c *Content) { c.Cert, c.Key = other.Cert, other.Key }), false, true},
		"a bundle of garbage":             {with(func(c *Content) { c.Bundle = garbage }), false, false},
		"no bundle":                       {with(func(c *Content) { c.Bundle = nil }), false, false},
		"garbage in front":                {with(func(c *Content) { c.Bundle = slices.Concat([]byte("# ours\n"), garbage, c.Bundle) }), true, true},
		"another CA beside":               {with(func(c *Content) { c.Bundle = slices.Concat(c.Bundle, other.Bundle) }), true, true},
		"no key of the CA":                {with(func(c *Content) { c.CAKeys = nil }), true, false},
		"the key of another CA":           {with(func(c *Content) { c.CAKeys = other.CAKeys }), true, false},
		"keys of garbage":                 {with(func(c *Content) { c.CAKeys = bytes.ReplaceAll(garbage, []byte("CERTIFICATE"), []byte("PRIVATE KEY")) }), true, false},
		"previous ones of garbage":        {with(func(c *Content) { c.Previous = garbage }), true, true},
		"published, it is not known when": {with(func(c *Content) { c.Published = "x y z" }), true, true},
		"published in year 9999":          {with(func(c *Content) { c.Published = strings.Replace(c.Published, "2030", "9999", 1) }), true, true},
		"all of another, but the CA":      {with(func(c *Content) { *c = other; c.Bundle = good.Bundle }), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			plan := next(t, usual, tt.c, everywhere, at)
			if kept := bytes.Equal(plan.Content.Cert, good.Cert); kept != tt.keeps {
				t.Errorf("certificate kept = %v; the plan did %q", kept, plan.Did)
			}
			if !tt.keeps {
				if err := serves(&plan.Content, good.Bundle, at); (err == nil) != tt.signed {
					t.Errorf("verifying with the previous CA: %v; the plan did %q", err, plan.Did)
				}
			} else if made := slices.Contains(plan.Did, "created a CA"); made == tt.signed {
				t.Errorf("the plan did %q", plan.Did)
			}
			// Later plans are valid as well.
			for now := plan.Look; now.Before(at.Add(200 * day)); now = plan.Look {
				plan = next(t, usual, plan.Content, everywhere, now)
			}
			if cas(plan.Content) != 1 {
				t.Errorf("got %d CAs", cas(plan.Content))
			}
		})
	}
}

// Earlier versions had a CA whose key was discarded. Its certificate is trusted until it is
// replaced, and for as long as a replica may serve with it.
func TestACertificateOfAnotherMaking(t *testing.T) {
	ten := Profile{Names: []string{service}, Lifetime: 365 * day, CALifetime: 3650 * day}
	c := next(t, ten, Content{}, nowhere, start).Content
	c.CAKeys, c.Published = nil, ""
	foreign := c
	now := start.Add(100 * day)
	var told []string
	for n := 0; n < 12 && now.Before(start.Add(400*day)); n++ {
		plan := next(t, usual, c, everywhere, now)
		if now.Before(certOf(t, foreign).NotAfter) {
			if err := serves(&foreign, plan.Content.Bundle, now); err != nil {
				t.Errorf("the previous certificate is not trusted: %v", err)
			}
		}
		if len(plan.Did) > 0 && plan.Did[0] != "issued a serving certificate" || len(told) == 1 {
			told = append(told, fmt.Sprintf("%v: %s; %d CAs", now.Sub(start.Add(100*day)), strings.Join(plan.Did, ", "), cas(plan.Content)))
		}
		c, now = plan.Content, plan.Look
	}
	want := []string{
		"0s: created a CA, recorded that the newest CA is published; 2 CAs",
		"1h0m0s: issued a serving certificate; 2 CAs",
		"6360h0m0s: dropped CAs whose certificates no replica serves; 1 CAs",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhoGoesOverToWhat(t *testing.T) {
	first := next(t, usual, Content{}, nowhere, start).Content
	first = next(t, usual, first, everywhere, start).Content
	renewed := next(t, usual, first, everywhere, start.Add(61*day)).Content
	stranger := next(t, usual, Content{}, nowhere, start.Add(70*day)).Content
	published := next(t, usual, stranger, everywhere, start.Add(70*day)).Content
	invalid := renewed
	invalid.Key = first.Key
	for name, tt := range map[string]struct {
		held, found Content
		after       time.Duration
		want        bool
	}{
		"the first":                             {Content{}, first, time.Hour, true},
		"the next":                              {first, renewed, 61 * day, true},
		"the same":                              {renewed, renewed, 61 * day, true},
		"the one before":                        {renewed, first, 61 * day, false},
		"the one before, as ours is invalid":    {invalid, first, 61 * day, true},
		"an invalid one":                        {first, invalid, 61 * day, false},
		"nothing":                               {first, Content{}, 61 * day, false},
		"one that clients may not trust yet":    {renewed, stranger, 70 * day, false},
		"the same, as ours has expired":         {first, stranger, 91 * day, true},
		"one by another CA, just published":     {renewed, published, 70 * day, false},
		"one by another CA, which is published": {renewed, published, 70*day + 2*time.Hour, true},
		"one that is valid, as ours is not yet": {renewed, first, day, true},
		"an expired one":                        {Content{}, first, 91 * day, false},
	} {
		now := start.Add(tt.after)
		if got := usual.succeeds(parse(&tt.held, now), parse(&tt.found, now), now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The leader writes a certificate with which all replicas can serve, and the CAs of all certificates
// that a replica may serve.
func TestTheSecretIsRepaired(t *testing.T) {
	first := next(t, usual, Content{}, nowhere, start).Content
	first = next(t, usual, first, everywhere, start).Content
	renewed := next(t, usual, first, everywhere, start.Add(61*day)).Content
	stranger := next(t, usual, Content{}, nowhere, start.Add(70*day)).Content
	published := next(t, usual, stranger, everywhere, start.Add(70*day)).Content
	invalid := renewed
	invalid.Cert = []byte("x")
	for name, tt := range map[string]struct {
		held, found, serves Content
		trusts              []Content
		unchanged           bool
	}{
		"it is as it was":             {renewed, renewed, renewed, nil, true},
		"it was deleted":              {renewed, Content{}, renewed, nil, true},
		"it was made invalid":         {renewed, invalid, renewed, nil, true},
		"the leader was late":         {first, renewed, renewed, []Content{first}, false},
		"the one before was restored": {renewed, first, renewed, []Content{first}, true},
		"another was made meanwhile":  {renewed, stranger, renewed, []Content{stranger}, false},
		"and published":               {renewed, published, published, []Content{renewed}, false},
		"the leader is new":           {Content{}, renewed, renewed, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := start.Add(71 * day)
			got, _, err := usual.combine(&tt.held, &tt.found, now)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Cert, tt.serves.Cert) {
				t.Error("the certificate is not the one to serve")
			}
			if tt.unchanged && !got.equal(&tt.held) {
				t.Error("the content has changed")
			}
			got = next(t, usual, got, everywhere, now).Content
			for _, c := range append(tt.trusts, tt.serves) {
				if err := serves(&c, got.Bundle, now); err != nil {
					t.Errorf("a replica serves a certificate that is not trusted: %v", err)
				}
			}
			again, _, err := usual.combine(&got, &got, now)
			if err != nil || !again.equal(&got) {
				t.Errorf("the repair is not complete (error %v)", err)
			}
		})
	}
}

func TestLifetimesAreValidated(t *testing.T) {
	for name, tt := range map[string]struct {
		leaf, ca time.Duration
		want     []string
	}{
		"usual":                {90 * day, 1825 * day, nil},
		"short":                {10 * time.Second, 20 * time.Second, nil},
		"too short":            {time.Second, time.Minute, []string{"the lifetime of the serving certificate is 1s, and must be at least 10s"}},
		"a CA that is too old": {day, day, []string{"the lifetime of the CA is 24h0m0s, and must be at least twice the lifetime of the serving certificate, which is 24h0m0s"}},
	} {
		p := Profile{Names: usual.Names, Lifetime: tt.leaf, CALifetime: tt.ca}
		var got []string
		if err := p.Validate(); err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// No content makes a plan panic, and the result is always valid.
func FuzzNext(f *testing.F) {
	plan, err := usual.Next(Content{}, nowhere, start)
	if err != nil {
		f.Fatal(err)
	}
	c := plan.Content
	f.Add(c.Bundle, c.CAKeys, c.Cert, c.Key, c.Previous, "x 2030-01-01T00:00:00Z")
	f.Add([]byte("x"), []byte(nil), c.Cert, c.CAKeys, c.Bundle, " ")
	f.Fuzz(func(t *testing.T, bundle, caKeys, cert, key, previous []byte, published string) {
		c := Content{bundle, caKeys, cert, key, previous, published}
		plan, err := usual.Next(c, everywhere, start)
		if err != nil {
			t.Fatal(err)
		}
		if !plan.Content.Usable(start) || !plan.Look.After(start) {
			t.Errorf("plan = %+v", plan)
		}
	})
}
