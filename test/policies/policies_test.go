// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// tries are requests of the server, with the message of the refusal, or "" for a request that is allowed.
type tries map[string]struct {
	old, new runtime.Object
	refusal  string
}

// try evaluates the requests with typed objects and with JSON. Requests of other users are never refused.
func (all tries) try(t *testing.T, name string, resource schema.GroupVersionResource) {
	t.Helper()
	compiled := compile(t, read(t)[name])
	for name, one := range all {
		t.Run(name, func(t *testing.T) {
			old, now := one.old, one.new
			for range 2 {
				if got := compiled.refusal(t, &request{resource: resource, user: account, old: old, new: now}); got != one.refusal {
					t.Errorf("%T: refusal = %q, want %q", now, got, one.refusal)
				}
				for _, other := range []string{"system:serviceaccount:configdep-system:other", "system:serviceaccount:other:configdep-apiserver", "kim", ""} {
					if got := compiled.refusal(t, &request{resource: resource, user: other, old: old, new: now}); got != "" {
						t.Errorf("the request of user %q is refused: %q", other, got)
					}
				}
				if now != nil {
					now = asJSON(t, now)
				}
				if old != nil {
					old = asJSON(t, old)
				}
			}
		})
	}
}

const (
	workloadAnnotations = "configdep may change no annotation of a workload but its own"
	templateAnnotations = "configdep may change no annotation of a pod template but its own, and remove none but those of other tools that restarted the pods"
	workloadMetadata    = "configdep may change no metadata of a workload but its own annotations"
	workloadSpec        = "configdep may change no specification of a workload but annotations and environment variables of its pod template, and pauses"
	podSpec             = "configdep may change no specification of pods but variables STAKATER_*_CONFIGMAP, _SECRET and _SECRETPROVIDERCLASS, with plain values, of at most 256 containers"
	pauses              = "configdep may pause a Deployment only with the annotation that says since when, and resume it only by removing both"
)

func TestWorkloads(t *testing.T) {
	web := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
		d.Name, d.Namespace, d.ResourceVersion = "web", "shop", "7"
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}}
		if change != nil {
			change(d)
		}
		return d
	}
	recorded := func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{record.ConfigHashAnnotation: "x", record.LastReloadAnnotation: "{}"}
		d.Spec.Template.Annotations = map[string]string{record.ConfigHashAnnotation: "x", record.ReloadedAtAnnotation: "now"}
	}
	tries{
		"the first restart of a workload without annotations": {web(nil), web(recorded), ""},
		"removing all annotations":                            {web(recorded), web(nil), ""},
		"fields that kube-apiserver sets": {web(nil), web(func(d *appsv1.Deployment) {
			recorded(d)
			d.Generation, d.ResourceVersion = 2, "8"
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "configdep"}}
		}), ""},
		"opting in": {web(nil), web(func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
		}), workloadAnnotations},
		"the template generation of a DaemonSet": {web(nil), web(func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
		}), workloadAnnotations},
		"a workload annotation on the template": {web(nil), web(func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{record.LastReloadAnnotation: "{}"}
		}), templateAnnotations},
		"an owner": {web(nil), web(func(d *appsv1.Deployment) {
			d.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
		}), workloadMetadata},
		"a finalizer":       {web(nil), web(func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/x"} }), workloadMetadata},
		"a label":           {web(nil), web(func(d *appsv1.Deployment) { d.Labels = map[string]string{"app": "x"} }), workloadMetadata},
		"replicas":          {web(nil), web(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) }), workloadSpec},
		"an image":          {web(nil), web(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "mine" }), podSpec},
		"a service account": {web(nil), web(func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = "admin" }), podSpec},
		"a pod's label": {web(nil), web(func(d *appsv1.Deployment) {
			d.Spec.Template.Labels = map[string]string{"app": "x"}
		}), workloadSpec},
	}.try(t, "workloads", kinds["Deployment"].resource)
}

// On pod templates, the server sets its own annotations, and only removes those by which other tools have restarted pods.
func TestWorkloads_AnnotationsOfOtherTools(t *testing.T) {
	web := func(pairs ...string) *appsv1.Deployment {
		d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
		d.Spec.Template.Annotations = map[string]string{"example.com/other": "x"}
		for i := 0; i < len(pairs); i += 2 {
			d.Spec.Template.Annotations[pairs[i]] = pairs[i+1]
		}
		return d
	}
	const reloaded, podReloader, wave = "reloader.stakater.com/last-reloaded-from", "pod-reloader.cs.sap.com/config-hash", "wave.pusher.com/config-hash"
	tries{
		"what has reloaded, for the first time":  {web(), web(reloaded, "{}"), ""},
		"what has reloaded, again":               {web(reloaded, "{}"), web(reloaded, "[]"), ""},
		"what has reloaded, no longer":           {web(reloaded, "{}"), web(), ""},
		"removing the hash of pod-reloader":      {web(podReloader, "x"), web(record.ConfigHashAnnotation, "y"), ""},
		"removing the hash of wave":              {web(wave, "x"), web(), ""},
		"a hash of pod-reloader":                 {web(), web(podReloader, "x"), templateAnnotations},
		"another hash of pod-reloader":           {web(podReloader, "x"), web(podReloader, "y"), templateAnnotations},
		"a hash of wave":                         {web(), web(wave, "x"), templateAnnotations},
		"another hash of wave":                   {web(wave, "x"), web(wave, "y"), templateAnnotations},
		"removing another annotation of wave":    {web("wave.pusher.com/scheduler-name", "x"), web(), templateAnnotations},
		"opting in by an annotation of Reloader": {web(), web("reloader.stakater.com/auto", "true"), templateAnnotations},
	}.try(t, "workloads", kinds["Deployment"].resource)
}

// The server sets, changes and removes the variables of restarts in containers, whatever their order, and nothing else of
// pods.
func TestWorkloads_Variables(t *testing.T) {
	const db, config = "STAKATER_DB_SECRET", "STAKATER_CONFIG_CONFIGMAP"
	plain := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	from := func(name string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}
	}
	a, b := plain("A", "a"), plain("B", "$(A)")
	for kind, k := range kinds {
		web := func(change func(*corev1.PodSpec)) runtime.Object {
			o := k.empty()
			o.GetObjectKind().SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
			pod := &templateOf(o).Spec
			pod.InitContainers = []corev1.Container{{Name: "init", Image: "app", Env: []corev1.EnvVar{a}}}
			pod.Containers = []corev1.Container{{Name: "app", Image: "app"}, {Name: "sidecar", Image: "app"}}
			if change != nil {
				change(pod)
			}
			return o
		}
		of := func(i int, env ...corev1.EnvVar) runtime.Object {
			return web(func(p *corev1.PodSpec) { p.Containers[i].Env = env })
		}
		t.Run(kind, func(t *testing.T) {
			tries{
				"a variable, where there is none":        {web(nil), of(0, plain(db, "1")), ""},
				"a variable, first":                      {of(0, a, b), of(0, plain(db, "1"), a, b), ""},
				"a variable, last":                       {of(0, a, b), of(0, a, b, plain(db, "1")), ""},
				"a variable without a value":             {of(0, a), of(0, a, corev1.EnvVar{Name: db}), ""},
				"a variable of another container":        {of(1, a), of(1, plain(config, "1"), a), ""},
				"another value":                          {of(0, a, plain(db, "1"), b), of(0, a, plain(db, "2"), b), ""},
				"a variable in the place of another one": {of(0, plain(config, "1"), a, b), of(0, a, plain(db, "2"), b), ""},
				"removing a variable":                    {of(0, a, plain(db, "1"), b), of(0, a, b), ""},
				"removing the only variable":             {of(0, plain(db, "1")), web(nil), ""},
				"a variable of a SecretProviderClass":    {web(nil), of(0, plain("STAKATER_VAULT_SECRETPROVIDERCLASS", "1")), ""},

				"a variable of a user":                            {of(0, a), of(0, a, b), podSpec},
				"another value of a variable of a user":           {of(0, a, b), of(0, plain("A", "x"), b), podSpec},
				"removing a variable of a user":                   {of(0, a, b), of(0, plain(db, "1"), a), podSpec},
				"another order of variables of users":             {of(0, a, b), of(0, b, a, plain(db, "1")), podSpec},
				"a variable with a prefix alone":                  {of(0, a), of(0, a, plain("STAKATER_ACCOUNT", "x")), podSpec},
				"a variable with a prefix and an end alone":       {of(0, a), of(0, a, plain("STAKATER__SECRET", "x")), podSpec},
				"a variable with an end alone":                    {of(0, a), of(0, a, plain("DB_SECRET", "x")), podSpec},
				"a variable with more in front":                   {of(0, a), of(0, a, plain("X_STAKATER_DB_SECRET", "x")), podSpec},
				"a variable from a Secret":                        {of(0, a), of(0, a, from(db)), podSpec},
				"a variable from a Secret, in the place of plain": {of(0, a, plain(db, "1")), of(0, a, from(db)), podSpec},
				"a plain variable, in the place of a Secret":      {of(0, a, from(db)), of(0, a, plain(db, "1")), podSpec},
				"removing a variable from a Secret":               {of(0, a, from(db)), of(0, a), podSpec},
				"a variable of an init container":                 {web(nil), web(func(p *corev1.PodSpec) { p.InitContainers[0].Env = []corev1.EnvVar{a, plain(db, "1")} }), podSpec},
				"a variable, and an image": {web(nil), web(func(p *corev1.PodSpec) {
					p.Containers[0].Image, p.Containers[0].Env = "mine", []corev1.EnvVar{plain(db, "1")}
				}), podSpec},
				"a variable, and an image of another container": {web(nil), web(func(p *corev1.PodSpec) {
					p.Containers[1].Image, p.Containers[0].Env = "mine", []corev1.EnvVar{plain(db, "1")}
				}), podSpec},
				"a variable, and an account": {web(nil), web(func(p *corev1.PodSpec) {
					p.ServiceAccountName, p.Containers[0].Env = "admin", []corev1.EnvVar{plain(db, "1")}
				}), podSpec},
				"a variable, and an image no longer": {web(nil), web(func(p *corev1.PodSpec) {
					p.Containers[0].Image, p.Containers[0].Env = "", []corev1.EnvVar{plain(db, "1")}
				}), podSpec},
				"another container": {web(nil), web(func(p *corev1.PodSpec) {
					p.Containers = append(p.Containers, corev1.Container{Name: "mine", Env: []corev1.EnvVar{plain(db, "1")}})
				}), podSpec},
				"a container fewer":               {web(nil), web(func(p *corev1.PodSpec) { p.Containers = p.Containers[:1] }), podSpec},
				"another order of the containers": {web(nil), web(func(p *corev1.PodSpec) { slices.Reverse(p.Containers) }), podSpec},
				"another name of a container":     {web(nil), web(func(p *corev1.PodSpec) { p.Containers[0].Name = "mine" }), podSpec},
			}.try(t, "workloads", k.resource)
		})
	}
}

// What the server writes is admitted although names of variables come twice, which is how users override those of a chart.
func TestWorkloads_VariablesThatAreDefinedTwice(t *testing.T) {
	env := []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "STAKATER_WEB_SECRET", Value: "old"}, {Name: "B", Value: "$(A)"}, {Name: "A", Value: "b"}}
	all := tries{}
	for _, strategy := range []record.Strategy{record.Annotate, record.EnvVar} {
		d := ingesttest.Deployment("web", corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Env: env}, {Name: "sidecar"}}})
		d.TypeMeta, d.ResourceVersion = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, "7"
		before := d.DeepCopy()
		p := policy.Policy{Mode: policy.Auto, Strategy: strategy}
		patch, err := p.RestartPatch(workloadtest.Read(d), &record.Restart{
			Last: record.NewAutomaticReload(nil, time.Now(), 0, "Secret/db"), Changed: []record.Changed{{Kind: dependency.Secret, Name: "db", Digest: "new"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ingesttest.Patch(t, d, patch)
		all[strategy.Name()] = struct {
			old, new runtime.Object
			refusal  string
		}{before, d, ""}
	}
	all.try(t, "workloads", kinds["Deployment"].resource)
}

// The server pauses a Deployment and resumes what it paused, and the annotation says which it is.
func TestWorkloads_Pauses(t *testing.T) {
	const key = "deployment.reloader.stakater.com/paused-at"
	if v := read(t)["workloads"].Spec.Variables[0]; v.Name != "pausedAt" || v.Expression != "'"+key+"'" { // users patch it by its index
		t.Errorf("the first variable is %s = %s, want pausedAt = '%s'", v.Name, v.Expression, key)
	}
	web := func(paused bool, since string) *appsv1.Deployment {
		d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
		d.Spec.Paused = paused
		if since != "" {
			d.Annotations = map[string]string{key: since}
		}
		return d
	}
	tries{
		"pausing":                         {web(false, ""), web(true, "now"), ""},
		"pausing what a user has resumed": {web(false, "before"), web(true, "now"), ""},
		"pausing what a user has resumed within the same second": {web(false, "now"), web(true, "now"), ""},
		"resuming": {web(true, "before"), web(false, ""), ""},
		"removing the annotation of what a user resumed":  {web(false, "before"), web(false, ""), ""},
		"pausing without the annotation":                  {web(false, ""), web(true, ""), pauses},
		"pausing and removing the annotation":             {web(false, "before"), web(true, ""), pauses},
		"the annotation alone":                            {web(false, ""), web(false, "now"), pauses},
		"the annotation of what a user has paused":        {web(true, ""), web(true, "now"), pauses},
		"resuming what a user has paused":                 {web(true, ""), web(false, ""), pauses},
		"resuming what a user has paused, and annotating": {web(true, ""), web(false, "now"), pauses},
		"resuming and keeping the annotation":             {web(true, "before"), web(false, "before"), pauses},
		"resuming and changing the annotation":            {web(true, "before"), web(false, "now"), pauses},
		"a longer pause":                                  {web(true, "before"), web(true, "now"), pauses},
		"a pause without an end":                          {web(true, "before"), web(true, ""), pauses},
		"another time of what is not paused":              {web(false, "before"), web(false, "now"), pauses},
	}.try(t, "workloads", kinds["Deployment"].resource)

	set := func(since string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}}
		if since != "" {
			s.Annotations = map[string]string{key: since}
		}
		return s
	}
	tries{
		"the annotation on a StatefulSet":                  {set(""), set("now"), workloadAnnotations},
		"removing the annotation from a StatefulSet":       {set("before"), set(""), workloadAnnotations},
		"another value of the annotation on a StatefulSet": {set("before"), set("now"), workloadAnnotations},
	}.try(t, "workloads", kinds["StatefulSet"].resource)
}

func TestOwnNamespace_Secrets(t *testing.T) {
	const anotherName = "configdep may write no Secret but configdep-hmac-key and configdep-serving-cert"
	const anotherType = "configdep may write no Secret of another type than Opaque and kubernetes.io/tls, and change no type"
	secret := func(name string, kind corev1.SecretType) *corev1.Secret {
		s := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: kind, Data: map[string][]byte{"key": []byte("x")}}
		s.Name, s.Namespace = name, "configdep-system"
		return s
	}
	const metadata = "configdep may change no metadata of what is in its namespace but annotations, and make nothing immutable"
	changed := func(s *corev1.Secret, change func(*corev1.Secret)) *corev1.Secret {
		s = s.DeepCopy()
		change(s)
		return s
	}
	key, cert := secret("configdep-hmac-key", corev1.SecretTypeOpaque), secret("configdep-serving-cert", corev1.SecretTypeTLS)
	tries{
		"create the key":                          {nil, key, ""},
		"fill an empty key":                       {secret(key.Name, corev1.SecretTypeOpaque), key, ""},
		"create the certificate":                  {nil, cert, ""},
		"renew the certificate":                   {cert, cert, ""},
		"a certificate of type Opaque":            {secret(cert.Name, corev1.SecretTypeOpaque), secret(cert.Name, corev1.SecretTypeOpaque), ""},
		"create another Secret":                   {nil, secret("mine", corev1.SecretTypeOpaque), anotherName},
		"update another Secret":                   {secret("mine", corev1.SecretTypeOpaque), secret("mine", corev1.SecretTypeOpaque), anotherName},
		"create a token":                          {nil, secret("mine", corev1.SecretTypeServiceAccountToken), anotherName},
		"create a token with the name of the key": {nil, secret(key.Name, corev1.SecretTypeServiceAccountToken), anotherType},
		"change the type to a token":              {key, secret(key.Name, corev1.SecretTypeServiceAccountToken), anotherType},
		"one of its annotations":                  {cert, changed(cert, func(s *corev1.Secret) { s.Annotations = map[string]string{"example.com/x": "y"} }), ""},
		"a missing owner":                         {key, changed(key, func(s *corev1.Secret) { s.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), metadata},
		"a finalizer":                             {key, changed(key, func(s *corev1.Secret) { s.Finalizers = []string{"example.com/x"} }), metadata},
		"a label":                                 {key, changed(key, func(s *corev1.Secret) { s.Labels = map[string]string{"x": "y"} }), metadata},
		"set immutable from false to true":        {changed(key, func(s *corev1.Secret) { s.Immutable = new(false) }), changed(key, func(s *corev1.Secret) { s.Immutable = new(true) }), metadata},
		"set immutable":                           {key, changed(key, func(s *corev1.Secret) { s.Immutable = new(true) }), metadata},
		"change the type":                         {key, secret(key.Name, corev1.SecretTypeTLS), anotherType},
	}.try(t, "own-namespace", corev1.SchemeGroupVersion.WithResource("secrets"))
}

func TestOwnNamespace_ConfigMapsAndLeases(t *testing.T) {
	named := func(o metav1.Object, name string) { o.SetName(name); o.SetNamespace("configdep-system") }
	configMap := func(name string) *corev1.ConfigMap {
		o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		named(o, name)
		return o
	}
	lease := func(name string) *coordinationv1.Lease {
		o := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
		named(o, name)
		return o
	}
	tries{
		"create the CA":     {nil, configMap("configdep-serving-ca"), ""},
		"renew the CA":      {configMap("configdep-serving-ca"), configMap("configdep-serving-ca"), ""},
		"another ConfigMap": {nil, configMap("kube-root-ca.crt"), "configdep may write no ConfigMap but configdep-serving-ca"},
	}.try(t, "own-namespace", corev1.SchemeGroupVersion.WithResource("configmaps"))
	tries{
		"the server's Lease": {nil, lease("configdep-apiserver"), ""},
		"another Lease":      {nil, lease("other"), "configdep may write no Lease but configdep-apiserver"},
	}.try(t, "own-namespace", coordinationv1.SchemeGroupVersion.WithResource("leases"))
}

func TestRegistrations_APIService(t *testing.T) {
	const (
		more     = "configdep may change nothing of an APIService but its Service and the CA, and set no priorities but 100 and 15"
		metadata = "configdep may change no metadata of an APIService but its owners"
		owners   = "configdep may let an APIService belong to nothing but ClusterRole configdep-apiserver:registration"
		another  = "configdep may write no APIService but v1alpha1.configdep.io, and let it lead to no Service but configdep-system/configdep-apiserver"
	)
	service := func(namespace, name string) map[string]any {
		return map[string]any{"namespace": namespace, "name": name, "port": int64(443)}
	}
	apiService := func(change func(metadata, spec map[string]any)) *unstructured.Unstructured {
		spec := map[string]any{
			"group": "configdep.io", "version": "v1alpha1", "groupPriorityMinimum": int64(100), "versionPriority": int64(15),
			"service": service("configdep-system", "configdep-apiserver"), "caBundle": "eA==",
		}
		metadata := map[string]any{"name": "v1alpha1.configdep.io", "uid": "1", "resourceVersion": "1", "ownerReferences": []any{}, "managedFields": []any{}}
		change(metadata, spec)
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec, "status": map[string]any{},
		}}
	}
	ours := apiService(func(_, _ map[string]any) {})
	elsewhere := apiService(func(_, spec map[string]any) { spec["service"] = service("shop", "configdep-apiserver") })
	mine := apiService(func(_, spec map[string]any) { spec["service"] = service("configdep-system", "mine") })
	insecure := apiService(func(_, spec map[string]any) { spec["insecureSkipTLSVerify"] = true })
	local := apiService(func(_, spec map[string]any) { delete(spec, "service"); delete(spec, "caBundle") })
	ownedBy := func(kind, name string) *unstructured.Unstructured {
		return apiService(func(metadata, _ map[string]any) {
			metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": kind, "name": name, "uid": kind + name}}
		})
	}
	annotated := apiService(func(metadata, _ map[string]any) {
		metadata["annotations"] = map[string]any{"cert-manager.io/inject-ca-from": "x"}
	})
	tries{
		"registration":                    {nil, ours, ""},
		"another name":                    {nil, apiService(func(metadata, _ map[string]any) { metadata["name"] = "v1beta1.metrics.k8s.io" }), another},
		"a Service of another name":       {nil, mine, another},
		"a Service in another namespace":  {nil, elsewhere, another},
		"no Service":                      {nil, local, another},
		"no verification of certificates": {nil, insecure, more},
		"a high priority":                 {nil, apiService(func(_, spec map[string]any) { spec["groupPriorityMinimum"] = int64(18000) }), more},
		"a finalizer":                     {nil, apiService(func(metadata, _ map[string]any) { metadata["finalizers"] = []any{"x"} }), metadata},
		"its owner":                       {ours, ownedBy("ClusterRole", "configdep-apiserver:registration"), ""},
		"an owner that stays":             {ours, ownedBy("Namespace", "kube-system"), owners},
		"another ClusterRole":             {nil, ownedBy("ClusterRole", "cluster-admin"), owners},
		"an owner of before":              {ownedBy("Namespace", "shop"), ownedBy("Namespace", "shop"), ""},
		"another CA":                      {ours, apiService(func(_, spec map[string]any) { spec["caBundle"] = "eQ==" }), ""},
		"another Service":                 {ours, mine, another},
		"its own Service again":           {elsewhere, ours, ""},
		"no verification any longer":      {ours, insecure, more},
		"verification again":              {insecure, ours, ""},
		"what another user has annotated": {annotated, annotated, ""},
		"an annotation":                   {ours, annotated, metadata},
		"an annotation of another user":   {annotated, ours, metadata},
	}.try(t, "registrations", schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
}

func TestEvictions(t *testing.T) {
	const refusal = "configdep may evict no pod but by its UID, and not with another grace period than its own"
	eviction := func(options *metav1.DeleteOptions) *policyv1.Eviction {
		e := &policyv1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"}, DeleteOptions: options}
		e.Name, e.Namespace = "web-0", "shop"
		return e
	}
	byUID := &metav1.Preconditions{UID: new(types.UID("x"))}
	tries{
		"by UID":                 {nil, eviction(&metav1.DeleteOptions{Preconditions: byUID}), ""},
		"without options":        {nil, eviction(nil), refusal},
		"by resource version":    {nil, eviction(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("1")}}), refusal},
		"without a precondition": {nil, eviction(&metav1.DeleteOptions{}), refusal},
		"no grace period":        {nil, eviction(&metav1.DeleteOptions{Preconditions: byUID, GracePeriodSeconds: new(int64(0))}), refusal},
	}.try(t, "evictions", corev1.SchemeGroupVersion.WithResource("pods"))
}

// The server changes nothing of a pod but the annotations by which it tells the pod something.
func TestPods(t *testing.T) {
	const (
		notOurs   = "configdep may change no annotation of a pod but its own"
		elsewhere = "configdep may change nothing of a pod but its own annotations"
		many      = "configdep may write no pod that has more than 256 annotations"
	)
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		p.Name, p.Namespace, p.ResourceVersion = "web-0", "shop", "7"
		p.Labels = map[string]string{"app": "web"}
		p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}}
		if change != nil {
			change(p)
		}
		return p
	}
	annotated := func(pairs ...string) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				p.Annotations[pairs[i]] = pairs[i+1]
			}
		})
	}
	numerous := pod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{}
		for n := range 257 {
			p.Annotations[fmt.Sprint(n)] = "x"
		}
	})
	tries{
		"telling it":           {pod(nil), annotated(record.RestartAnnotation, "a", record.RestartingAnnotation, "b"), ""},
		"telling it again":     {annotated(record.RestartAnnotation, "a", "x", "y"), annotated(record.RestartAnnotation, "b", "x", "y"), ""},
		"removing it":          {annotated(record.RestartAnnotation, "a"), pod(nil), ""},
		"another annotation":   {pod(nil), annotated("x", "y"), notOurs},
		"one of the workload":  {pod(nil), annotated(record.ConfigHashAnnotation, "y"), notOurs},
		"another value":        {annotated("x", "y"), annotated("x", "z"), notOurs},
		"removing another":     {annotated("x", "y"), pod(nil), notOurs},
		"too many annotations": {pod(nil), numerous, many},
		"a label":              {pod(nil), pod(func(p *corev1.Pod) { p.Labels["x"] = "y" }), elsewhere},
		"removing labels":      {pod(nil), pod(func(p *corev1.Pod) { p.Labels = nil }), elsewhere},
		"a finalizer":          {pod(nil), pod(func(p *corev1.Pod) { p.Finalizers = []string{"x/y"} }), elsewhere},
		"removing a finalizer": {pod(func(p *corev1.Pod) { p.Finalizers = []string{"x/y"} }), pod(nil), elsewhere},
		"an owner":             {pod(nil), pod(func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), elsewhere},
		"an image":             {pod(nil), pod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "mine" }), elsewhere},
		"a deadline":           {pod(nil), pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }), elsewhere},
		"a toleration":         {pod(nil), pod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "x"}} }), elsewhere},
		"a status":             {pod(nil), pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), elsewhere},
		"fields of kube-apiserver": {pod(nil), pod(func(p *corev1.Pod) {
			p.ResourceVersion, p.ManagedFields = "8", []metav1.ManagedFieldsEntry{{Manager: "configdep"}}
		}), ""},
	}.try(t, "pods", corev1.SchemeGroupVersion.WithResource("pods"))
}

// The server creates only Jobs that follow from its annotations, and deletes only those that it replaces.
func TestJobs(t *testing.T) {
	const (
		creation  = "configdep may create no Job but one of a CronJob, a suspended copy, or one that replaces another"
		deletion  = "configdep may delete no Job but one that it is replacing, or the copy of one"
		notOurs   = "configdep may change no annotation of a Job or CronJob but its own"
		elsewhere = "configdep may change nothing of a Job or CronJob but its own annotations"
		many      = "configdep may write no Job or CronJob that has more than 256 annotations"
	)
	job := func(change func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}}
		j.Name, j.Namespace, j.ResourceVersion = "seed", "shop", "7"
		j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}}
		if change != nil {
			change(j)
		}
		return j
	}
	annotated := func(keys ...string) *batchv1.Job {
		return job(func(j *batchv1.Job) {
			j.Annotations = map[string]string{}
			for _, key := range keys {
				j.Annotations[key] = "x"
			}
		})
	}
	suspended := func(j *batchv1.Job) *batchv1.Job {
		j.Spec.Suspend = new(true)
		return j
	}
	labelled := func(j *batchv1.Job) *batchv1.Job {
		j.Labels = map[string]string{"app.kubernetes.io/managed-by": "configdep"}
		return j
	}
	owned := func(j *batchv1.Job, kinds ...string) *batchv1.Job {
		for _, kind := range kinds {
			j.OwnerReferences = append(j.OwnerReferences, metav1.OwnerReference{APIVersion: "batch/v1", Kind: kind, Name: "report", UID: "u", Controller: new(true)})
		}
		return j
	}
	const instantiate = "cronjob.kubernetes.io/instantiate"
	numerous := job(func(j *batchv1.Job) {
		j.Annotations = map[string]string{}
		for n := range 257 {
			j.Annotations[fmt.Sprint(n)] = "x"
		}
	})
	tries{
		"a Job of a CronJob":          {nil, owned(annotated(instantiate), "CronJob"), ""},
		"one without the annotation":  {nil, owned(annotated(), "CronJob"), creation},
		"one of another owner":        {nil, owned(annotated(instantiate), "Workflow"), creation},
		"one of two owners":           {nil, owned(annotated(instantiate), "CronJob", "Workflow"), creation},
		"a copy":                      {nil, suspended(annotated(record.CopyAnnotation)), ""},
		"a copy with labels":          {nil, suspended(labelled(annotated(record.CopyAnnotation, record.CopyLabelsAnnotation))), ""},
		"a copy that runs":            {nil, annotated(record.CopyAnnotation), creation},
		"a replacement":               {nil, annotated(record.ReplacesAnnotation), ""},
		"a replacement with an owner": {nil, owned(annotated(record.ReplacesAnnotation), "CronJob"), creation},
		"any Job":                     {nil, job(nil), creation},
		"any suspended Job":           {nil, suspended(job(nil)), creation},

		"deleting what is replaced":              {annotated(record.RecreatingAnnotation), nil, ""},
		"deleting a copy":                        {annotated(record.CopyAnnotation), nil, ""},
		"deleting a replacement":                 {annotated(record.ReplacesAnnotation), nil, deletion},
		"deleting any Job":                       {job(nil), nil, deletion},
		"deleting one with too many annotations": {numerous, nil, deletion},

		"the record":            {job(nil), annotated(record.ConfigHashAnnotation, record.AppliedSourcesAnnotation, record.LastReloadAnnotation, record.RecreatingAnnotation, record.ApprovedAnnotation), ""},
		"a copy that says more": {suspended(annotated(record.CopyAnnotation)), suspended(annotated(record.CopyAnnotation, record.ConfigHashAnnotation)), ""},
		"labels of a copy":      {job(nil), annotated(record.CopyLabelsAnnotation), notOurs}, // they are written when it is created
		"removing the record":   {annotated(record.ConfigHashAnnotation), job(nil), ""},
		"another annotation":    {job(nil), annotated("x"), notOurs},
		"opting in":             {job(nil), annotated("reloader.stakater.com/auto"), notOurs},
		"removing another":      {annotated("x"), job(nil), notOurs},
		"resuming a copy":       {suspended(annotated(record.CopyAnnotation)), annotated(record.CopyAnnotation), elsewhere},
		"an image":              {job(nil), job(func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "mine" }), elsewhere},
		"a label":               {job(nil), job(func(j *batchv1.Job) { j.Labels = map[string]string{"app": "x"} }), elsewhere},
		"a finalizer":           {job(nil), job(func(j *batchv1.Job) { j.Finalizers = []string{"example.com/x"} }), elsewhere},
		"removing an owner":     {owned(job(nil), "CronJob"), job(nil), elsewhere},
		"a status":              {job(nil), job(func(j *batchv1.Job) { j.Status.Active = 1 }), elsewhere},
		"too many annotations":  {job(nil), numerous, many},
		"fields of kube-apiserver": {job(nil), job(func(j *batchv1.Job) {
			j.Generation, j.ResourceVersion = 2, "8"
			j.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "configdep"}}
		}), ""},
	}.try(t, "jobs", batchv1.SchemeGroupVersion.WithResource("jobs"))
}

// Policies apply only to requests of the server, and fail closed.
func TestEveryPolicyConcernsTheServerAlone(t *testing.T) {
	policies := read(t)
	if len(policies) != 7 { // the default ones, and those for evictions, restarts in place and Jobs
		t.Errorf("the manifests have %d policies, want 7", len(policies))
	}
	for name, p := range policies {
		want := []admissionregistrationv1.MatchCondition{{Name: "by-configdep", Expression: "has(request.userInfo.username) && request.userInfo.username == '" + account + "'"}}
		if !slices.Equal(p.Spec.MatchConditions, want) {
			t.Errorf("%s: match conditions = %v", name, p.Spec.MatchConditions)
		}
		if p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("%s: failure policy = %v, want Fail", name, p.Spec.FailurePolicy)
		}
	}
}
