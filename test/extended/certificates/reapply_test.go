// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

const keySecret = "configdep-hmac-key"

// kept is the data that the server keeps in its namespace.
type kept struct {
	key, certificate map[string][]byte
	published        string
	authorities      map[string]string
}

func (s *scene) kept(ctx context.Context) (k kept, err error) {
	key, err1 := s.core.CoreV1().Secrets(install.Namespace).Get(ctx, keySecret, metav1.GetOptions{})
	certificate, err2 := s.core.CoreV1().Secrets(install.Namespace).Get(ctx, install.CertificateSecret, metav1.GetOptions{})
	authorities, err3 := s.core.CoreV1().ConfigMaps(install.Namespace).Get(ctx, caConfigMap, metav1.GetOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		return kept{}, err
	}
	for _, o := range []*corev1.Secret{key, certificate} {
		if o.Type != corev1.SecretTypeOpaque {
			return kept{}, fmt.Errorf("Secret %s has the type %s", o.Name, o.Type)
		}
	}
	return kept{key.Data, certificate.Data, certificate.Annotations["configdep.io/ca-published"], authorities.Data}, nil
}

// entries returns the names of the entries.
func (k *kept) entries() string {
	return fmt.Sprint(slices.Sorted(maps.Keys(k.key)), slices.Sorted(maps.Keys(k.certificate)), slices.Sorted(maps.Keys(k.authorities)))
}

// Applying the manifests again does not empty the Secrets whose content the server keeps, whether kubectl applies
// on either side or GitOps tools do, which apply as kubectl does. Tools that replace objects empty the Secrets,
// and so do users who delete them: then the server restores the content.
func TestNothingEmptiesWhatTheServerKeeps(t *testing.T) {
	s := newScene(t, func(*controlplane.ControlPlane) install.Options {
		return install.Options{Replicas: 2, Race: install.RaceDetector, ManagedCertificates: true, Log: t.Output(), Args: []string{"--shutdown-delay-duration=0s"}}
	})
	var before kept
	await.Until(s.t, "all Secrets are filled", func(ctx context.Context) (err error) {
		before, err = s.kept(ctx)
		if err == nil && (before.entries() != "[key] [ca.crt ca.key tls.crt tls.key] [ca.crt]" || before.published == "") {
			err = fmt.Errorf("entries = %s, published = %q", before.entries(), before.published)
		}
		return err
	})
	if before.authorities["ca.crt"] != string(before.certificate["ca.crt"]) {
		t.Error("the ConfigMap has other CAs than the Secret")
	}

	// Each round applies a change: an annotation on every object.
	manifests := filepath.Join(s.server.Dir(), "again")
	if err := os.MkdirAll(manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	apply := func(what string, args ...string) {
		t.Helper()
		kustomization := fmt.Sprintf(`{"resources": ["../%s"], "commonAnnotations": {"round": %q}}`, filepath.Base(s.server.Manifests()), what)
		if err := os.WriteFile(filepath.Join(manifests, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
			t.Fatal(err)
		}
		s.kubectl(append(args, "-k", manifests)...)
		for _, o := range []string{"secret/" + keySecret, "secret/" + install.CertificateSecret, "configmap/" + caConfigMap} {
			if round := s.kubectl("-n", install.Namespace, "get", o, "-o", "jsonpath={.metadata.annotations.round}"); round != what {
				t.Errorf("%s was not written: its round is %q", o, round)
			}
		}
	}
	same := func(after kept) string { return cmp.Diff(before, after, cmp.AllowUnexported(kept{})) }

	for _, way := range []struct {
		name string
		args []string
	}{
		{"kubectl, as Argo CD", []string{"apply"}},
		{"kubectl, server-side", []string{"apply", "--server-side", "--force-conflicts"}},
		{"Flux", []string{"apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"}},
		{"Argo CD, server-side", []string{"apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller"}},
		{"kubectl again", []string{"apply"}},
	} {
		t.Run(way.name, func(t *testing.T) {
			apply(way.name, way.args...)
			after, err := s.kept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if same(after) != "" { // a diff would print keys
				t.Errorf("entries = %s, published = %v, or the content differs", after.entries(), after.published != "")
			}
		})
	}
	for name, empty := range map[string]func(){
		"kubectl replace, as Argo CD with Replace=true": func() { apply("replaced", "replace") },
		"deleted and applied again": func() {
			for _, name := range []string{keySecret, install.CertificateSecret} {
				if err := s.core.CoreV1().Secrets(install.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				s.missing(name, 1)
			}
			if err := s.core.CoreV1().ConfigMaps(install.Namespace).Delete(t.Context(), caConfigMap, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			apply("deleted", "apply")
		},
	} {
		t.Run(name, func(*testing.T) {
			empty()
			await.Until(s.t, "the content is restored", func(ctx context.Context) error {
				after, err := s.kept(ctx)
				if err == nil && same(after) != "" {
					err = fmt.Errorf("entries = %s, published = %v, or the content differs", after.entries(), after.published != "")
				}
				return err
			})
			s.missing(keySecret, 0)
			s.missing(install.CertificateSecret, 0)
		})
	}
	s.noRightIsMissing()
}
