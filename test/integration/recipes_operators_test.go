// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// head has the fields of all objects that are in the manifests of recipes.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// templateOf is a template of metadata.
type templateOf struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// Of the kinds of operators, these have the fields that the recipes use, so that a field that does not exist is an error.
type (
	externalSecret struct {
		head `json:",inline"`

		Spec struct {
			RefreshInterval string                      `json:"refreshInterval"`
			SecretStoreRef  struct{ Kind, Name string } `json:"secretStoreRef"`
			Target          struct {
				Name     string     `json:"name"`
				Template templateOf `json:"template"`
			} `json:"target"`
			Data []struct {
				SecretKey string                         `json:"secretKey"`
				RemoteRef struct{ Key, Property string } `json:"remoteRef"`
			} `json:"data"`
		} `json:"spec"`
	}
	vaultStaticSecret struct {
		head `json:",inline"`

		Spec struct {
			Type         string `json:"type"`
			Mount        string `json:"mount"`
			Path         string `json:"path"`
			RefreshAfter string `json:"refreshAfter"`
			Destination  struct {
				Name           string            `json:"name"`
				Create         bool              `json:"create"`
				Annotations    map[string]string `json:"annotations"`
				Transformation struct {
					ExcludeRaw bool `json:"excludeRaw"`
				} `json:"transformation"`
			} `json:"destination"`
		} `json:"spec"`
	}
	sealedSecret struct {
		head `json:",inline"`

		Spec struct {
			EncryptedData map[string]string `json:"encryptedData"`
			Template      templateOf        `json:"template"`
		} `json:"spec"`
	}
)

// An operator is a client that makes a Secret and updates it.
type operator struct {
	*recipe

	manager string // of fields
	secret  *corev1.Secret
}

// sync writes the Secret as the operators do that use a client of controller-runtime or client-go: they create it, and then replace its
// data and metadata.
func (o *operator) sync(change func(*corev1.Secret)) metav1.Object {
	o.Helper()
	client := kube.CoreV1().Secrets(o.namespace)
	change(o.secret)
	if o.secret.ResourceVersion == "" {
		made, err := client.Create(o.Context(), o.secret, metav1.CreateOptions{FieldManager: o.manager})
		o.must(err)
		o.secret = made
		return made
	}
	made, err := client.Update(o.Context(), o.secret, metav1.UpdateOptions{FieldManager: o.manager})
	o.must(err)
	o.secret = made
	return made
}

// data returns a change of the Secret.
func data(keysAndValues ...string) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.Data = map[string][]byte{}
		for k, v := range pairs(keysAndValues...) {
			s.Data[k] = []byte(v)
		}
	}
}

// rotates checks that the Deployment web, which reads a whole Secret and is to be restarted for what is marked, is restarted once for a rotation
// by the operator, and not for what it does besides.
func (o *operator) rotates(key string, besides func(*corev1.Secret)) {
	o.Helper()
	o.write("ConfigMap/unmarked", "key", "old")
	o.sync(data(key, "old"))
	o.create(deployment("web", envFromSecret(o.secret.Name), envFromConfigMap("unmarked")))
	o.run(0)
	o.view("deployment.web", applied)
	o.restartsNothing("web", func() metav1.Object { return o.sync(besides) })
	o.restarts("web", ref("Secret/"+o.secret.Name), func() metav1.Object { return o.sync(data(key, "new")) })
}

// marks checks that the Deployment web is restarted for marked sources only.
func (o *operator) marks() {
	o.Helper()
	o.restartsNothing("web", func() metav1.Object { return o.write("ConfigMap/unmarked", "key", "new") })
}

// External Secrets Operator has a field manager for each ExternalSecret, and a digest of the content in an annotation.
func recipeExternalSecrets(r *recipe) {
	var from externalSecret
	r.manifest(&from)
	annotations := maps.Clone(from.Spec.Target.Template.Metadata.Annotations)
	annotations["reconcile.external-secrets.io/data-hash"] = "6f4b1a"
	s := &operator{r, "externalsecrets.external-secrets.io/" + from.Metadata.Name, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: from.Spec.Target.Name, Annotations: annotations,
		Labels:          pairs("reconcile.external-secrets.io/managed", "true", "reconcile.external-secrets.io/created-by", "1f0a"),
		OwnerReferences: r.owner(from.head, true),
	}}}
	s.rotates(from.Spec.Data[0].SecretKey, func(s *corev1.Secret) { s.Annotations["reconcile.external-secrets.io/data-hash"] = "7a5c2b" })
	s.marks()
}

// owner returns the reference to the object that an operator makes a Secret of. The garbage collector leaves alone what has an owner of a
// kind that it does not know.
func (r *recipe) owner(of head, controller bool) []metav1.OwnerReference {
	o := metav1.OwnerReference{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Metadata.Name, UID: types.UID("of-" + r.namespace)}
	if controller {
		o.Controller, o.BlockOwnerDeletion = new(true), new(true)
	}
	return []metav1.OwnerReference{o}
}

// cert-manager applies the Secret, with what the certificate says in annotations.
func recipeCertManager(r *recipe) {
	issue := func(certificate, key, ca string) metav1.Object {
		r.Helper()
		made, err := kube.CoreV1().Secrets(r.namespace).Apply(r.Context(), corev1ac.Secret("web-tls", r.namespace).
			WithType(corev1.SecretTypeTLS).
			WithLabels(pairs("controller.cert-manager.io/fao", "true")).
			WithAnnotations(pairs(
				"cert-manager.io/certificate-name", "web", "cert-manager.io/common-name", "", "cert-manager.io/alt-names", "web.shop.svc",
				"cert-manager.io/ip-sans", "", "cert-manager.io/uri-sans", "",
				"cert-manager.io/issuer-name", "ca", "cert-manager.io/issuer-kind", "ClusterIssuer", "cert-manager.io/issuer-group", "cert-manager.io")).
			WithData(map[string][]byte{"tls.crt": []byte(certificate), "tls.key": []byte(key), "ca.crt": []byte(ca)}),
			metav1.ApplyOptions{FieldManager: "cert-manager-certificates-issuing", Force: true})
		r.must(err)
		return made
	}
	issue("certificate", "key", "CA")
	client := single("client")
	annotate := r.next("console")
	r.volumes(&client.Spec.Template.Spec)
	r.create(client)
	r.create(deployment("web", mounts(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "web-tls"}})))
	r.shell(annotate, 0)
	r.view("deployment.client", applied)
	r.restartsNothing("client", func() (made metav1.Object) {
		r.restarts("web", "Secret/web-tls", func() metav1.Object { made = issue("renewed certificate", "renewed key", "CA"); return made })
		return made
	})
	r.restarts("client", "Secret/web-tls", func() metav1.Object { return issue("next certificate", "next key", "next CA") })
}

// volumes adds the volumes of the next block to a pod, and mounts them.
func (r *recipe) volumes(p *corev1.PodSpec) {
	r.Helper()
	var with struct {
		Volumes []corev1.Volume `json:"volumes"`
	}
	r.manifest(&with)
	for _, v := range with.Volumes {
		p.Volumes = append(p.Volumes, v)
		p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
}

func recipeVault(r *recipe) {
	injected := single("injected")
	optedIn(injected)
	injected.Spec.Template.Annotations = pairs("vault.hashicorp.com/agent-inject", "true", "vault.hashicorp.com/agent-inject-secret-db", "kv/shop/db")
	injected.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "vault-secrets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}}
	r.create(injected)
	r.view("deployment.injected", is(v1alpha1.StateInSync, "NothingRead"))

	var from vaultStaticSecret
	r.manifest(&from)
	to := from.Spec.Destination
	s := &operator{r, "vault-secrets-operator", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: to.Name, Annotations: to.Annotations,
		Labels: pairs("app.kubernetes.io/managed-by", "hashicorp-vso", "app.kubernetes.io/name", "vault-secrets-operator",
			"app.kubernetes.io/component", "secret-sync", "secrets.hashicorp.com/vso-ownerRefUID", "of-"+r.namespace),
		OwnerReferences: r.owner(from.head, false),
	}}}
	if !to.Create || !to.Transformation.ExcludeRaw {
		r.Errorf("the destination is %+v", to)
	}
	s.rotates("password", func(s *corev1.Secret) { s.Labels["vault"] = "moved" })
	// What the recipe excludes has the version of Vault.
	for version := range 2 {
		raw := fmt.Sprintf(`{"data":{"password":"new"},"metadata":{"version":%d}}`, version)
		r.restarts("web", db, func() metav1.Object { return s.sync(data("password", "new", "_raw", raw)) })
	}
	s.marks()
}

// The class is what TestCSI_Rotations mounts.
func recipeSecretsStore(r *recipe) {
	var with corev1.PodSpec
	r.manifest(&with)
	if csi := with.Volumes[0].CSI; csi == nil || csi.VolumeAttributes["secretProviderClass"] == "" {
		r.Errorf("the volumes are %+v", with.Volumes)
	}
}

// The controller of Sealed Secrets replaces the content of the Secret, and writes nothing if it is sealed again.
func recipeSealedSecrets(r *recipe) {
	var from sealedSecret
	r.manifest(&from)
	s := &operator{r, "controller", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: from.Metadata.Name, Annotations: from.Spec.Template.Metadata.Annotations, OwnerReferences: r.owner(from.head, true),
	}}}
	for key := range from.Spec.EncryptedData {
		s.rotates(key, func(s *corev1.Secret) { s.Annotations["sealed"] = "again" })
		s.marks()
	}
}

// argoApplication has the fields of an Application that the recipe uses.
type argoApplication struct {
	head `json:",inline"`

	Spec struct {
		Project     string                                         `json:"project"`
		Source      struct{ RepoURL, TargetRevision, Path string } `json:"source"`
		Destination struct{ Server, Namespace string }             `json:"destination"`
		SyncPolicy  struct {
			Automated                struct{ Prune, SelfHeal bool } `json:"automated"`
			ManagedNamespaceMetadata struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"managedNamespaceMetadata"`
			SyncOptions []string `json:"syncOptions"`
		} `json:"syncPolicy"`
	} `json:"spec"`
}

// Argo CD applies the namespace and the workload, and corrects what differs.
func recipeArgoCD(r *recipe) {
	var app argoApplication
	r.manifest(&app)
	if app.Spec.Destination.Namespace != r.namespace {
		r.Fatalf("the destination is %+v", app.Spec.Destination)
	}
	r.write(db, "password", "old")
	const manager = "argocd-controller"
	metadata := map[string]any{"name": r.namespace, "annotations": app.Spec.SyncPolicy.ManagedNamespaceMetadata.Annotations}
	_, err := kube.CoreV1().Namespaces().Patch(r.Context(), r.namespace, types.ApplyPatchType,
		asJSON(r.T, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}), metav1.PatchOptions{FieldManager: manager})
	r.must(err)
	git := manifestOf(r.T, deployment("web", envSecretKey("db", "password")))
	r.must(await.NextSecond(r.Context()))
	r.apply(git, manager)
	runningPods(r.T, r.namespace, "web", 2, nil)
	r.survives(git, manager)

	var configMap struct{ Data map[string]string }
	r.manifest(&configMap)
	var excluded []struct{ APIGroups, Kinds, Clusters []string }
	r.must(yaml.UnmarshalStrict([]byte(configMap.Data["resource.exclusions"]), &excluded))
	if len(excluded) != 1 || len(excluded[0].APIGroups) != 1 || excluded[0].APIGroups[0] != v1alpha1.SchemeGroupVersion.Group {
		r.Errorf("excluded are %+v", excluded)
	}
	var ignoring struct { // what it has to ignore is what TestDrift finds
		Spec struct {
			IgnoreDifferences []struct {
				Group, Kind  string
				JSONPointers []string
			}
			SyncPolicy struct{ SyncOptions []string }
		}
	}
	r.manifest(&ignoring)
}

// helmRelease has the fields of a HelmRelease that the recipe uses.
type helmRelease struct {
	head `json:",inline"`

	Spec struct {
		Interval string `json:"interval"`
		Chart    struct {
			Spec struct {
				Chart     string                      `json:"chart"`
				SourceRef struct{ Kind, Name string } `json:"sourceRef"`
			} `json:"spec"`
		} `json:"chart"`
		DriftDetection struct{ Mode string } `json:"driftDetection"`
		PostRenderers  []struct {
			Kustomize map[string]any `json:"kustomize"`
		} `json:"postRenderers"`
	} `json:"spec"`
}

// helm-controller installs what the post-renderer makes of the chart, and corrects what differs.
func recipeFlux(r *recipe) {
	var release helmRelease
	r.manifest(&release)
	r.write(db, "password", "old")
	kustomization := release.Spec.PostRenderers[0].Kustomize
	kustomization["resources"] = []string{"chart.yaml"}
	for name, content := range map[string]any{"kustomization.yaml": kustomization, "chart.yaml": manifestOf(r.T, deployment("web", envSecretKey("db", "password")))} {
		r.must(os.WriteFile(filepath.Join(r.dir, name), asJSON(r.T, content), 0o600))
	}
	git := fromYAML(r.T, r.shell("kubectl kustomize .", 0))
	const manager = "helm-controller"
	r.must(await.NextSecond(r.Context()))
	r.apply(git, manager)
	runningPods(r.T, r.namespace, "web", 2, nil)
	r.survives(git, manager)

	var waiting struct {
		Spec struct {
			Wait         bool
			HealthChecks []struct{ APIVersion, Kind, Name, Namespace string }
		}
	}
	r.manifest(&waiting)
	for _, check := range waiting.Spec.HealthChecks {
		if check.APIVersion != v1alpha1.SchemeGroupVersion.String() || check.Kind != "ConfigDependency" || check.Namespace != r.namespace {
			r.Errorf("it waits for %+v", check)
		}
		r.view(check.Name, applied)
	}
}

func recipeCharts(r *recipe) {
	r.write(db, "password", "old")
	templates := filepath.Join(r.dir, "web", "templates")
	r.must(os.MkdirAll(templates, 0o700))
	web := string(asJSON(r.T, manifestOf(r.T, deployment("web", envSecretKey("db", "password")))))
	for path, text := range map[string]string{
		"web/Chart.yaml":         "{apiVersion: v2, name: web, version: 1.0.0}",
		"web/values.yaml":        "image: {tag: v1}",
		"web/templates/web.yaml": strings.Replace(web, `"image":"app"`, `"image":"app:{{ .Values.image.tag }}"`, 1),
	} {
		r.must(os.WriteFile(filepath.Join(r.dir, path), []byte(text), 0o600))
	}
	r.run(0)
	image := func(want string) {
		r.Helper()
		r.until("web", "is released", func(d *appsv1.Deployment) error {
			if got := d.Spec.Template.Spec.Containers[0].Image; got != "app:"+want {
				return fmt.Errorf("image = %s", got)
			}
			return nil
		})
		r.view("deployment.web", applied)
	}
	image("v2")
	r.restarts("web", db, func() metav1.Object { return r.write(db, "password", "new") })
	r.shell("helm rollback web 1 -n "+r.namespace, 0)
	image("v1")
	r.restarts("web", db, func() metav1.Object { return r.write(db, "password", "newer") })
}
