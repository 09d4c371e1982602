// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// deleted: the deleted Secret is filled again with the same content after the manifests are applied; until then,
// replicas report that the Secret is missing.
func (s *scene) deleted() {
	s.t.Helper()
	s.renewed() // certificates cannot be renewed without the Secret
	before := s.secret()
	if err := s.core.CoreV1().Secrets(install.Namespace).Delete(s.t.Context(), before.Name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.missing(before.Name, 1)
	s.kubectl("apply", "-k", s.server.Manifests())
	await.Until(s.t, "the Secret is filled", func(context.Context) error {
		after := s.secret()
		switch ca := certs(after.Data["ca.crt"]); {
		case len(ca) == 0:
			return errors.New("the Secret is empty")
		case after.UID == before.UID:
			return errors.New("the certificate is the same")
		case !has(ca, last(certs(before.Data["ca.crt"]))): // earlier ones may have been replaced in the meantime
			s.t.Error("the Secret has another CA")
		}
		return nil
	})
	s.missing(before.Name, 0)
}

func last(all []*x509.Certificate) *x509.Certificate { return all[len(all)-1] }

func has(all []*x509.Certificate, one *x509.Certificate) bool {
	return slices.ContainsFunc(all, one.Equal)
}

// renewed waits until every replica has just got another certificate.
func (s *scene) renewed() {
	s.t.Helper()
	for _, r := range s.server.Replicas {
		await.Until(s.t, "the certificate of "+r.Name()+" has been renewed", func(ctx context.Context) error {
			leaf, err := s.dial(ctx, r)
			if err != nil {
				return err
			}
			if left := time.Until(leaf.NotAfter); left < lifetime*5/6 {
				return fmt.Errorf("the certificate is valid for %v more", left)
			}
			return nil
		})
	}
}

// missing waits until the metric of every replica shows whether a Secret is missing.
func (s *scene) missing(name string, want float64) {
	s.t.Helper()
	for _, r := range s.server.Replicas {
		await.Until(s.t, fmt.Sprintf("the metric of %s shows whether Secret %s is missing", r.Name(), name), func(ctx context.Context) error {
			value, err := s.metric(ctx, r, `configdep_server_secret_missing\{secret="`+name+`"\}`)
			if err == nil && value != want {
				err = fmt.Errorf("metric = %v", value)
			}
			return err
		})
	}
}

// damaged: the Secret is restored from the certificate in use.
func (s *scene) damaged() {
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
func (s *scene) overwritten() {
	s.t.Helper()
	stranger, err := pki.NewAuthority("stranger")
	if err != nil {
		s.t.Fatal(err)
	}
	list, err := s.dynamic.Resource(webhooks).Get(s.t.Context(), install.Name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	n, _, _ := unstructured.NestedSlice(list.Object, "webhooks")
	var patch []map[string]any
	for i := range n {
		patch = append(patch, map[string]any{"op": "replace", "path": fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), "value": stranger.BundlePEM()})
	}
	ofWebhooks, err := json.Marshal(patch)
	if err != nil {
		s.t.Fatal(err)
	}
	ofService, err := json.Marshal([]map[string]any{{"op": "remove", "path": "/spec/caBundle"}})
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
		if _, err := s.dynamic.Resource(webhooks).Patch(s.t.Context(), install.Name, types.JSONPatchType, ofWebhooks, metav1.PatchOptions{}); err != nil {
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
func (s *scene) leaderKilled() {
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

// withoutARight: a replica without a certificate serves no requests, keeps trying, and stops when it is told to.
func (s *scene) withoutARight() {
	s.t.Helper()
	r, err := s.server.StartExtra("without-a-right", install.ReplicaOptions{Args: []string{"--serving-certificate-secret=of-another-program"}})
	if err != nil {
		s.t.Fatal(err)
	}
	await.Until(s.t, "the replica has tried twice", func(context.Context) error {
		log, err := os.ReadFile(r.Log())
		if err != nil {
			return err
		}
		if strings.Count(string(log), "Reading the serving certificate failed, will retry") < 2 {
			return errors.New("the log has fewer than two failures")
		}
		return nil
	})
	if err := r.Terminate(); err != nil {
		s.t.Errorf("the replica did not stop in order: %v", err)
	}
	if log, err := os.ReadFile(r.Log()); err != nil || strings.Contains(string(log), "Serving securely") {
		s.t.Errorf("the replica has served (%v)", err)
	}
}
