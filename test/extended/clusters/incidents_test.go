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
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

func last(all []*x509.Certificate) *x509.Certificate { return all[len(all)-1] }

func has(all []*x509.Certificate, one *x509.Certificate) bool {
	return slices.ContainsFunc(all, one.Equal)
}

// damaged: the Secret is restored from the certificate in use.
func (s *rotation) damaged() {
	s.t.Helper()
	before := s.secret()
	damaged := before.DeepCopy()
	damaged.Data["tls.crt"], damaged.Data["ca.crt"], damaged.Annotations = []byte("x"), []byte("y"), nil
	delete(damaged.Data, "ca.key")
	damaged.ResourceVersion = ""
	if _, err := s.core.CoreV1().Secrets(install.Namespace).Update(s.t.Context(), damaged, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	await.Until(s.t, "the Secret is repaired", func(context.Context) error {
		after := s.secret()
		if ca := certs(after.Data["ca.crt"]); !has(ca, last(certs(before.Data["ca.crt"]))) || len(after.Data["ca.key"]) == 0 {
			return fmt.Errorf("the Secret has %d CAs", len(ca))
		}
		return nil
	})
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
			if successor = now[len(now)-1]; successor.Equal(before[len(before)-1]) {
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
