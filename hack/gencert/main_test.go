package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const serviceName = "configdep-apiserver.configdep-system.svc"

// kube-apiserver dials the Service by this name and trusts nothing but the caBundle.
func TestAggregatorAcceptsTheCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	if err := run(serviceName+", "+serviceName+".cluster.local", dir, nil); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("ca.crt holds no certificate")
	}

	now := time.Now()
	tests := map[string]struct {
		name string
		at   time.Time
		ok   bool
	}{
		"service":             {serviceName, now, true},
		"full service name":   {serviceName + ".cluster.local", now, true},
		"clock a bit behind":  {serviceName, now.Add(-time.Minute), true},
		"eleven months later": {serviceName, now.AddDate(0, 11, 0), true},
		"expired":             {serviceName, now.AddDate(1, 0, 1), false},
		"another service":     {"kubernetes.default.svc", now, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := pair.Leaf.Verify(x509.VerifyOptions{
				DNSName: tc.name, Roots: roots, CurrentTime: tc.at,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			if (err == nil) != tc.ok {
				t.Errorf("verify: %v, want accepted: %v", err, tc.ok)
			}
		})
	}

	info, err := os.Stat(filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("tls.key has mode %v, want it readable by its owner alone", got)
	}
}

func TestNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	if err := run(serviceName, dir, nil); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := run(serviceName, dir, nil); err == nil {
		t.Error("the second run did not fail")
	}
	after, err := os.ReadFile(filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the key was overwritten")
	}
}

func TestErrorsNameTheFlag(t *testing.T) {
	dir := t.TempDir()
	tests := map[string]struct {
		dns, out string
		rest     []string
		want     string
	}{
		"no names":    {out: dir, want: "-dns is required"},
		"empty name":  {dns: "a,,b", out: dir, want: "empty name"},
		"not a name":  {dns: "https://a", out: dir, want: `"https://a" is not a DNS name`},
		"no folder":   {dns: "a", want: "-out is required"},
		"stray value": {dns: "a", out: dir, rest: []string{"b"}, want: `unexpected argument "b"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(tc.dns, tc.out, tc.rest)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}
