// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

const (
	root       = "../../.."
	namespace  = "configdep-system"
	apiService = "v1alpha1.configdep.io"
	limit      = 3 * time.Minute

	// The test removes endpoints immediately, unlike a cluster.
	quick = "extraArgs={--shutdown-delay-duration=2s}"
)

var (
	// cluster is a control plane with controllers but without nodes.
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
	objects dynamic.Interface
	server  string // path of the built program

	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == postRender { // helm runs this program as a plugin
		if err := toThisMachine(os.Stdin, os.Stdout, os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := install.BuildTools(context.Background(), os.Stderr, "helm"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(controlplane.Run(m, controlplane.Options{Nodes: 1}, func(c *controlplane.ControlPlane) {
		var err error
		cluster, client, objects = c, kubernetes.NewForConfigOrDie(c.RESTConfig()), dynamic.NewForConfigOrDie(c.RESTConfig())
		if server, err = install.Build(context.Background(), "./cmd/configdep-apiserver", false); err != nil {
			panic(err)
		}
	}))
}

// release is an installation by helm.
type release struct {
	name         string // of the objects
	dir          string
	api, webhook *endpoint
	values       []string
	replicas     int
	authorities  func(context.Context) ([]byte, error) // the CA certificates of the replicas, in PEM
}

// A release is installed, works, is upgraded without a failed request, and is uninstalled in an order that leaves no
// APIService without a server. The releases run one after the other, because a cluster can have only one.
func TestLifeOfARelease(t *testing.T) {
	for name, test := range map[string]struct {
		name   string
		values []string
		given  bool     // the certificate comes from an existing Secret
		blind  []string // namespaces that the release must not show
	}{
		"default values":          {name: "configdep-apiserver"},
		"with namespaces":         {name: "cfg", values: []string{"fullnameOverride=cfg", "namespaces={shop,shop-payments}", quick}, blind: []string{"other"}},
		"with an existing Secret": {name: "configdep-apiserver", values: []string{"tls.mode=existingSecret", "tls.existingSecret=mine", quick}, given: true},
		"without a webhook":       {name: "configdep-apiserver", values: []string{"webhook.enabled=false", quick}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &release{name: test.name, dir: t.TempDir(), api: newEndpoint(t), webhook: newEndpoint(t), values: test.values, authorities: managedAuthorities}
			if err := plugin(filepath.Join(r.dir, "plugins")); err != nil {
				t.Fatal(err)
			}
			makeNamespaces(t, namespace, "shop", "shop-payments", "other")
			if test.given {
				r.giveSecret(t, "mine")
			}
			hasWebhook := !slices.Contains(test.values, "webhook.enabled=false")

			out := r.helm(t, "install")
			for _, want := range []string{"configdep is installed", "delete secret configdep-hmac-key"} {
				if !strings.Contains(out, want) {
					t.Errorf("the output of helm does not contain %q:\n%s", want, out)
				}
			}
			old := []*replica{r.startReplica(t), r.startReplica(t)}
			kubectl(t, "wait", "--for=condition=Available", "apiservice/"+apiService, "--timeout=2m")
			r.checkBundles(t, hasWebhook)
			works(t, "shop", hasWebhook)
			for _, other := range test.blind {
				if found := kubectl(t, "get", "configdependencies", "-n", other, "-o", "name"); found != "" {
					t.Errorf("the server shows %s of namespace %s", found, other)
				}
			}

			before, kept := r.bundles(t, hasWebhook), r.awaitKept(t, map[bool]int{false: 3, true: 2}[test.given])
			requests := poll(t)
			r.values = append(r.values, "replicas=3", "reload.settle=2s", "logging.verbosity=2", "webhook.timeoutSeconds=2")
			r.helm(t, "upgrade")
			deployment, err := client.AppsV1().Deployments(namespace).Get(t.Context(), r.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if args := deployment.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--settle=2s") || !slices.Contains(args, "--v=2") || *deployment.Spec.Replicas != 3 {
				t.Errorf("replicas = %d, arguments = %v, want 3 with the new values", *deployment.Spec.Replicas, args)
			}
			var replicas []*replica
			for n := range 3 {
				replicas = append(replicas, r.startReplica(t))
				if n < len(old) {
					old[n].terminate()
				}
			}
			for _, p := range old {
				p.awaitEnd()
				p.checkLog()
			}
			requests()
			if after := r.bundles(t, hasWebhook); !slices.Equal(before, after) {
				t.Errorf("the upgrade changed the CA bundles:\n%v\n%v", before, after)
			}
			works(t, "shop", hasWebhook)

			// An upgrade with the same values changes nothing.
			r.helm(t, "upgrade")
			again, err := client.AppsV1().Deployments(namespace).Get(t.Context(), r.name, metav1.GetOptions{})
			if err != nil || again.Generation != deployment.Generation {
				t.Errorf("generation after an equal upgrade = %d, want %d (%v)", again.Generation, deployment.Generation, err)
			}
			if after := r.bundles(t, hasWebhook); !slices.Equal(before, after) {
				t.Errorf("an equal upgrade changed the CA bundles:\n%v\n%v", before, after)
			}
			r.checkKept(t, kept)

			for _, p := range replicas {
				p.checkLog()
			}
			r.uninstall(t)
			for _, p := range replicas {
				p.terminate()
			}
			// The namespace contains the Secrets, which Helm keeps, and the Lease, which the server has created.
			kubectl(t, "delete", "namespace", "shop", "shop-payments", "other", namespace, "--timeout=2m")
			for _, p := range replicas {
				p.awaitEnd()
			}
		})
	}
}

// helm installs or upgrades the release.
func (r *release) helm(t *testing.T, verb string, more ...string) string {
	t.Helper()
	chart, err := filepath.Abs(filepath.Join(root, "artifacts", "charts", "configdep"))
	if err != nil {
		t.Fatal(err)
	}
	return r.run(t, append([]string{verb, "configdep", chart, "--set", strings.Join(r.values, ","),
		"--post-renderer", postRender, "--post-renderer-args", r.api.port(), "--post-renderer-args", r.webhook.port()}, more...)...)
}

func (r *release) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := cluster.Command(ctx, filepath.Join(root, "hack", "helm.sh"), append(args, "--namespace", namespace)...)
	cmd.Env = append(cmd.Env, "HELM_PLUGINS="+filepath.Join(r.dir, "plugins"))
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			out = append(out, exit.Stderr...)
		}
		t.Fatalf("helm %s: %v:\n%s", args[0], err, out)
	}
	return string(out)
}

// uninstall uninstalls the release while its replicas run, and checks the order of deletions.
func (r *release) uninstall(t *testing.T) {
	t.Helper()
	manifest := filepath.Join(r.dir, "manifest.yaml")
	if err := os.WriteFile(manifest, []byte(r.run(t, "get", "manifest", "configdep")), 0o600); err != nil {
		t.Fatal(err)
	}
	if there := strings.Fields(kubectl(t, "get", "-f", manifest, "-o", "name")); len(there) < 15 {
		t.Errorf("the release contains only %v", there)
	}
	// Helm decides when the webhook configuration is deleted (version 3 deletes it last). The order does no harm,
	// because requests pass without an answer.
	api := deleted(t, apiServices, "", apiService)
	deployment := deleted(t, appsv1.SchemeGroupVersion.WithResource("deployments"), namespace, r.name)
	r.run(t, "uninstall", "configdep")
	if first, then := api(), deployment(); first > then {
		t.Errorf("the Deployment was deleted at revision %d, before the APIService at %d", then, first)
	}
	keep := []string{"secret/configdep-hmac-key"}
	if !slices.ContainsFunc(r.values, func(v string) bool { return strings.HasPrefix(v, "tls.mode=") }) {
		keep = append(keep, "secret/configdep-serving-cert")
	}
	await.Until(t, "only the Secrets that the server has filled are left of the release", func(ctx context.Context) error {
		out, err := cluster.Kubectl(ctx, "get", "-f", manifest, "--ignore-not-found", "-o", "name")
		if left := strings.Fields(out); err == nil && !slices.Equal(slices.Sorted(slices.Values(left)), keep) {
			err = fmt.Errorf("remaining objects: %s", left)
		}
		return err
	})
	if key, err := client.CoreV1().Secrets(namespace).Get(t.Context(), "configdep-hmac-key", metav1.GetOptions{}); err != nil || len(key.Data) == 0 {
		t.Errorf("the HMAC key does not outlive the release: %d entries, error = %v", len(key.Data), err)
	}
}

// deleted watches an object, and returns a function that waits for its deletion and returns the revision of the store
// at which it was deleted.
func deleted(t *testing.T, resource schema.GroupVersionResource, namespace, name string) func() uint64 {
	t.Helper()
	all := objects.Resource(resource).Namespace(namespace)
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	list, err := all.List(t.Context(), only)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("finding %s %s: found %d objects, want 1 (%v)", resource.Resource, name, len(list.Items), err)
	}
	only.ResourceVersion = list.GetResourceVersion()
	w, err := all.Watch(t.Context(), only)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return func() uint64 {
		t.Helper()
		for {
			select {
			case event, ok := <-w.ResultChan():
				if !ok {
					t.Fatal("the watch has ended")
				}
				if event.Type != watch.Deleted {
					continue
				}
				revision, err := strconv.ParseUint(event.Object.(*unstructured.Unstructured).GetResourceVersion(), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return revision
			case <-time.After(limit):
				t.Fatalf("%s %s is still there", resource.Resource, name)
			}
		}
	}
}

// bundles returns the caBundles of the APIService and of the webhooks, in base64.
func (r *release) bundles(t *testing.T, hasWebhook bool) (bundles []string) {
	t.Helper()
	bundles = append(bundles, kubectl(t, "get", "apiservice", apiService, "-o", "jsonpath={.spec.caBundle}"))
	if hasWebhook {
		bundles = append(bundles, strings.Split(kubectl(t, "get", "mutatingwebhookconfiguration", r.name, "-o", `jsonpath={range .webhooks[*]}{.clientConfig.caBundle}{","}{end}`), ",")...)
		bundles = bundles[:len(bundles)-1]
	}
	return bundles
}

// checkBundles waits until the server has filled in all CA bundles.
func (r *release) checkBundles(t *testing.T, hasWebhook bool) {
	t.Helper()
	want := map[bool]int{true: 5, false: 1}[hasWebhook]
	await.Until(t, "all caBundles are filled in", func(context.Context) error {
		if found := r.bundles(t, hasWebhook); len(found) != want || slices.Contains(found, "") {
			return fmt.Errorf("CA bundles = %v", found)
		}
		return nil
	})
}

func managedAuthorities(ctx context.Context) ([]byte, error) {
	secret, err := client.CoreV1().Secrets(namespace).Get(ctx, "configdep-serving-cert", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return secret.Data["ca.crt"], nil
}

// giveSecret creates a certificate, in a Secret and as files that the replicas read instead of a mount.
func (r *release) giveSecret(t *testing.T, name string) {
	t.Helper()
	authority, err := pki.NewAuthority("another")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.ServingCert([]string{r.name + "." + namespace + ".svc"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": authority.BundlePEM()}}
	if _, err := client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for file, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(r.dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.authorities = func(context.Context) ([]byte, error) { return authority.BundlePEM(), nil }
}

// works checks in a namespace that the API answers, that the webhook adds the hash to a new workload, and that a change
// of content reloads the workload.
func works(t *testing.T, namespace string, hasWebhook bool) {
	t.Helper()
	ctx := t.Context()
	secrets, deployments := client.CoreV1().Secrets(namespace), client.AppsV1().Deployments(namespace)
	source, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "db-"}, Data: map[string][]byte{"password": []byte("one")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	web := workload("web-", source.Name)
	if hasWebhook {
		await.Until(t, "the webhook adds the hash to new workloads", func(ctx context.Context) error {
			made, err := deployments.Create(ctx, web, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && made.Spec.Template.Annotations[policy.ConfigHashAnnotation] == "" {
				err = fmt.Errorf("template annotations = %v", made.Spec.Template.Annotations)
			}
			return err
		})
	}
	made, err := deployments.Create(ctx, web, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "wait", "--for=condition=InSync", "configdependency/deployment."+made.Name, "-n", namespace, "--timeout=2m")
	source.Data["password"] = []byte("two")
	if _, err := secrets.Update(ctx, source, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the workload is reloaded", func(ctx context.Context) error {
		now, err := deployments.Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		hash := now.Spec.Template.Annotations[policy.ConfigHashAnnotation]
		if hash == "" || hash == made.Spec.Template.Annotations[policy.ConfigHashAnnotation] {
			return fmt.Errorf("template annotations = %v", now.Spec.Template.Annotations)
		}
		return nil
	})
	await.Until(t, "there is an event for the reload", func(ctx context.Context) error {
		events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=ConfigReloaded,involvedObject.name=" + made.Name})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("no event yet")
		}
		return err
	})
}

// workload returns a Deployment that reads a Secret and has opted in.
func workload(generateName, secret string) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{GenerateName: generateName, Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "1s"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "app", Image: "registry.k8s.io/pause:3.10",
					EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
				}}},
			},
		},
	}
}

// poll sends requests to the API through kube-apiserver, until the returned function is called, which reports all
// failed requests.
func poll(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var failed []error
	asked := 0
	one := func() error {
		return client.CoreV1().RESTClient().Get().AbsPath("/apis/configdep.io/v1alpha1/namespaces/shop/configdependencies").Do(ctx).Error()
	}
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := one(); err != nil && ctx.Err() == nil {
				failed = append(failed, err)
			}
			asked++
		}
	})
	return func() {
		t.Helper()
		cancel()
		wg.Wait()
		if asked < 50 || len(failed) > 0 {
			t.Errorf("of %d requests, %d failed, want at least 50 and no failure: %v", asked, len(failed), errors.Join(failed...))
		}
	}
}

func makeNamespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == namespace {
			n.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
		}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	other := workload("web-", "db")
	if _, err := client.AppsV1().Deployments("other").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
