// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package certificates tests the certificates that the server creates, with replicas whose certificates live for a
// minute: requests continue while certificates and their CA are replaced, and users delete, damage and overwrite
// the objects.
package certificates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

const (
	// lifetime is the lifetime of serving certificates. They are renewed when a third of it is left.
	lifetime = time.Minute
	// pause is the time between two requests of a client.
	pause = 100 * time.Millisecond

	caConfigMap = "configdep-serving-ca"

	serverName = install.Name + "." + install.Namespace + ".svc"
)

var (
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	webhooks    = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
)

func TestRotation(t *testing.T) {
	s := newScene(t, func(*controlplane.ControlPlane) install.Options {
		return install.Options{
			Replicas: 2, Race: install.RaceDetector, ManagedCertificates: true, Log: t.Output(),
			Args: []string{
				"--serving-certificate-lifetime=" + lifetime.String(), "--serving-ca-lifetime=" + (lifetime * 9 / 4).String(), "--shutdown-delay-duration=0s",
				// A certificate is renewed when a third of its lifetime is left, and then the leader may be
				// killed. The rest of the lifetime must suffice until another replica leads and a new CA has been
				// trusted for a twentieth of its lifetime, even on a busy machine.
				"--leader-elect-lease-duration=3s",
			},
		}
	})
	first := certs(s.secret().Data["ca.crt"])
	var pids []int
	var mu sync.Mutex
	leaves := map[string]map[string]bool{} // by replica
	defer s.keep("through the aggregator", s.get)()
	var stops []func()
	var dialed []*atomic.Int64
	for _, r := range s.server.Replicas {
		pids = append(pids, r.PID())
		leaves[r.Name()] = map[string]bool{}
		defer s.keep("on a new connection to "+r.Name(), func(ctx context.Context) error {
			leaf, err := s.dial(ctx, r)
			if err == nil {
				mu.Lock()
				leaves[r.Name()][leaf.SerialNumber.String()] = true
				mu.Unlock()
			}
			return err
		})()
		get, n := s.connected(r)
		dialed, stops = append(dialed, n), append(stops, s.keep("on an old connection to "+r.Name(), get))
	}

	// Rotation.
	most := 0
	await.Until(s.t, "the first CA is no longer trusted, and its successor is in use", func(ctx context.Context) error {
		bundles, err := s.bundles(ctx)
		if err != nil {
			return err
		}
		now := certs(bundles[0])
		most = max(most, len(now))
		mu.Lock()
		defer mu.Unlock()
		for name, seen := range leaves {
			if len(seen) < 3 {
				return fmt.Errorf("%s has served with %d certificates", name, len(seen))
			}
		}
		for _, ca := range now {
			if ca.Equal(first[0]) {
				return errors.New("the first CA is still trusted")
			}
		}
		return nil
	})
	s.check("after the rotation")
	if len(first) != 1 || most != 2 {
		t.Errorf("the first bundle has %d CAs, later bundles at most %d", len(first), most)
	}
	for i, r := range s.server.Replicas {
		stops[i]()
		if dialed[i].Load() != 1 {
			t.Errorf("the old connection to %s was opened %d times", r.Name(), dialed[i].Load())
		}
		if r.PID() != pids[i] {
			t.Errorf("%s was restarted", r.Name())
		}
		await.Until(s.t, "the metric shows when the certificate expires", func(ctx context.Context) error {
			leaf, err := s.dial(ctx, r)
			if err != nil {
				return err
			}
			expiry, err := s.metric(ctx, r, "configdep_serving_certificate_expiry_timestamp_seconds")
			if err == nil && int64(expiry) != leaf.NotAfter.Unix() {
				err = fmt.Errorf("metric = %f, the certificate expires at %d", expiry, leaf.NotAfter.Unix())
			}
			return err
		})
	}

	s.deleted()
	s.check("after the deletion of the Secret")
	s.damaged()
	s.check("after damage to the Secret")
	s.overwritten()
	s.check("after caBundle was overwritten")
	s.leaderKilled()
	s.check("after the leader was killed")
	s.noRightIsMissing()
	s.withoutARight()
}

// With a certificate from files, caBundle comes from a file too.
func TestBundleFromAFile(t *testing.T) {
	var file string
	s := newScene(t, func(c *controlplane.ControlPlane) install.Options {
		file = filepath.Join(c.Dir(), "configdep", "ca.crt")
		return install.Options{Race: install.RaceDetector, Log: t.Output(), Args: []string{"--ca-bundle-file=" + file, "--shutdown-delay-duration=0s"}}
	})
	ours, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	everywhere := func(want []byte) {
		t.Helper()
		await.Until(s.t, "the bundle is in place", func(ctx context.Context) error {
			bundles, err := s.bundles(ctx)
			for i, b := range bundles {
				if !bytes.Equal(b, want) {
					err = fmt.Errorf("bundle %d has %d CAs", i, len(certs(b)))
				}
			}
			return err
		})
	}
	everywhere(ours)
	s.overwritten()
	everywhere(ours)
	both := append(bytes.Clone(ours), other.BundlePEM()...)
	if err := os.WriteFile(file, both, 0o600); err != nil {
		t.Fatal(err)
	}
	everywhere(both)
	if expiry, err := s.metric(t.Context(), s.server.Replicas[0], "configdep_serving_certificate_expiry_timestamp_seconds"); err != nil || expiry < float64(time.Now().Unix()) {
		t.Errorf("metric = %f (%v)", expiry, err)
	}
}
