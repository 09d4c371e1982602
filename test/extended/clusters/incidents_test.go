// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// lost: the Secret gets another CA, and requests succeed again once that is published.
func (s *rotation) lost() {
	s.t.Helper()
	secret := s.secret()
	before := secret.Data["ca.crt"]
	secret.Data = nil
	begun := time.Now()
	s.forgive(func() {
		if _, err := s.core.CoreV1().Secrets(install.Namespace).Update(s.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			s.t.Fatal(err)
		}
		await.Until(s.t, "there is another CA", func(context.Context) error {
			if after := s.secret().Data["ca.crt"]; len(after) == 0 || bytes.Equal(after, before) {
				return fmt.Errorf("the Secret has %d CAs", len(certs(after)))
			}
			return nil
		})
	})
	s.t.Logf("requests succeeded again %v after the Secret was emptied", time.Since(begun))
}

// overwritten: caBundle is restored.
func (s *rotation) overwritten() {
	s.t.Helper()
	stranger, err := pki.NewAuthority("stranger")
	if err != nil {
		s.t.Fatal(err)
	}
	ofService, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/caBundle", "value": stranger.BundlePEM()}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.forgive(func() {
		other := []byte(`{"data": {"ca.crt": "other"}}`)
		if _, err := s.core.CoreV1().ConfigMaps(install.Namespace).Patch(s.t.Context(), caConfigMap, types.MergePatchType, other, metav1.PatchOptions{}); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.dynamic.Resource(apiServices).Patch(s.t.Context(), install.APIService, types.JSONPatchType, ofService, metav1.PatchOptions{}); err != nil {
			s.t.Fatal(err)
		}
		await.Until(s.t, "the bundles are restored", func(ctx context.Context) error {
			bundles, err := s.bundles(ctx)
			if err != nil {
				return err
			}
			for i, b := range bundles {
				if len(certs(b)) == 0 || bytes.Equal(b, stranger.BundlePEM()) {
					return fmt.Errorf("bundle %d differs", i)
				}
			}
			return nil
		})
	})
}

// leaderKilled: another replica continues the rotation. Requests to the killed replica fail; all others succeed.
func (s *rotation) leaderKilled() {
	s.t.Helper()
	leader, other := s.leader()
	s.forgive(func() {
		// After the key of the CA is deleted, another CA is created.
		before := certs(s.secret().Data["ca.crt"])
		if _, err := s.core.CoreV1().Secrets(install.Namespace).Patch(s.t.Context(), install.CertificateSecret, types.JSONPatchType,
			[]byte(`[{"op": "remove", "path": "/data/ca.key"}]`), metav1.PatchOptions{}); err != nil {
			s.t.Fatal(err)
		}
		var successor *x509.Certificate
		await.Until(s.t, "another CA is created", func(context.Context) error {
			now := certs(s.secret().Data["ca.crt"])
			if successor = now[0]; successor.Equal(before[0]) {
				return errors.New("there is only the old one")
			}
			return nil
		})
		leader.Kill()
		await.Until(s.t, "the other replica serves with the new CA", func(ctx context.Context) error {
			leaf, err := s.dial(ctx, other)
			if err != nil {
				s.t.Errorf("on a new connection to the other replica: %v", err)
				return err
			}
			return leaf.CheckSignatureFrom(successor)
		})
		if err := leader.Start(); err != nil {
			s.t.Fatal(err)
		}
		if err := leader.AwaitReady(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	})
}
