// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/install"
)

// A Beacon is a custom resource that names a Secret. Its controller would read the Secret when the Beacon is created, and each time
// its annotation says that it is restarted. The definition goes, with all Beacons, and comes back, again and again.

const (
	beaconGroup     = "sea.example.com"
	beaconName      = "light"
	beaconRestarted = "sea.example.com/restarted-at"
)

var (
	beacons     = schema.GroupVersionResource{Group: beaconGroup, Version: "v1", Resource: "beacons"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

const beaconKind = `apiVersion: config.configdep.io/v1alpha1
kind: WorkloadKinds
kinds:
- group: sea.example.com
  kind: Beacon
  resource: beacons
  versions: [v1]
  sources: [{kind: Secret, name: .spec.secretName}]
  reload: {by: Annotation, annotation: sea.example.com/restarted-at}
`

// describeBeacons writes the file of kinds into a folder, and returns its name.
func describeBeacons(folder string) (string, error) {
	name := filepath.Join(folder, "kinds.yaml")
	return name, os.WriteFile(name, []byte(beaconKind), 0o600)
}

// allowBeacons gives the servers the rights on Beacons.
func allowBeacons(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	const name = "configdep-beacons"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{beaconGroup}, Resources: []string{beacons.Resource}, Verbs: []string{"get", "list", "watch", "patch"},
	}}}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: install.Namespace, Name: install.Name}},
	}, metav1.CreateOptions{})
	return err
}

// beacon is what the journal shows of the Beacon of a history. The lock of the journal guards it.
type beacon struct {
	namespace string
	exists    bool
	recorded  bool
	restarted string // its annotation
	content   string // of the Secret
	read      string // of it, at the creation of the Beacon or at its last restart
	// changes and restarts are those since it was created, and one change if there was any since it was last deleted.
	changes, restarts int
	// all are the restarts and the creations of the history.
	all struct{ restarts, created int }
}

// apply handles an event of the Secret or the Beacon, without a value if it was deleted. It returns a violation, or nothing.
func (b *beacon) apply(resource string, value []byte, secret *corev1.Secret) (violation string, err error) {
	switch {
	case resource == "secrets" && secret != nil && string(secret.Data["key"]) != b.content:
		b.content = string(secret.Data["key"])
		b.changes++
		return "", nil
	case resource != beacons.Resource:
		return "", nil
	case len(value) == 0:
		b.exists, b.changes = false, 0
		return "", nil
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(value, &o); err != nil {
		return "", err
	}
	restarted := o.Annotations[beaconRestarted]
	b.recorded = o.Annotations[hashAnnotation] != ""
	switch {
	case !b.exists:
		// A replica that lists it does not know whether the Secret changed before: it may restart it once, in doubt.
		b.exists, b.restarted, b.read, b.changes, b.restarts = true, restarted, b.content, min(b.changes, 1), 0
		b.all.created++
	case restarted != b.restarted:
		b.restarted, b.read = restarted, b.content
		b.restarts++
		b.all.restarts++
		if b.restarts > b.changes {
			return fmt.Sprintf("the Beacon was restarted %d times since it was created, for %d changes", b.restarts, b.changes), nil
		}
	}
	return "", nil
}

// keeper is the owner of the Beacon and its definition.
type keeper struct {
	stage   *stage
	objects dynamic.Interface
	b       *beacon
	number  int
	// step is held during a step, and by a phase in which nothing may change.
	step sync.Mutex
}

func newKeeper(s *stage, b *beacon) (*keeper, error) {
	objects, err := dynamic.NewForConfig(cluster.RESTConfig())
	return &keeper{stage: s, objects: objects, b: b}, err
}

// run lets the definition come and go until the history ends, at least once, and at last deletes it.
func (k *keeper) run(ctx context.Context, ending <-chan struct{}) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.b.namespace}}
	if _, err := k.stage.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	// While the definition is absent, content changes as well.
	steps := []func(context.Context) error{k.change, k.define, k.create, k.awaitRecord, k.change, k.awaitRestart, k.change, k.awaitRestart, k.withdraw, k.awaitGone}
	for i := 0; ; i++ {
		if i >= len(steps) { // the definition has gone once
			select {
			case <-ending:
				return errors.Join(k.withdraw(ctx), k.awaitGone(ctx))
			default:
			}
		}
		if err := k.do(ctx, steps[i%len(steps)]); err != nil {
			return fmt.Errorf("the custom resource: %w", err)
		}
	}
}

func (k *keeper) do(ctx context.Context, step func(context.Context) error) error {
	k.step.Lock()
	defer k.step.Unlock()
	return step(ctx)
}

// change creates or changes the Secret.
func (k *keeper) change(ctx context.Context) error {
	k.number++
	k.stage.logf("the Secret of the Beacon is %d", k.number)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "oil"}, StringData: map[string]string{"key": strconv.Itoa(k.number)}}
	secrets := k.stage.client.CoreV1().Secrets(k.b.namespace)
	return try(ctx, "writing the Secret of the Beacon", func(ctx context.Context) error {
		_, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		}
		return err
	})
}

func (k *keeper) define(ctx context.Context) error {
	k.stage.logf("the definition comes")
	type object = map[string]any
	definition := &unstructured.Unstructured{Object: object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": beacons.Resource + "." + beaconGroup},
		"spec": object{
			"group": beaconGroup, "scope": "Namespaced",
			"names": object{"kind": "Beacon", "listKind": "BeaconList", "plural": beacons.Resource, "singular": "beacon"},
			"versions": []any{object{"name": beacons.Version, "served": true, "storage": true,
				"schema": object{"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}
	return try(ctx, "creating the definition", func(ctx context.Context) error {
		_, err := k.objects.Resource(definitions).Create(ctx, definition.DeepCopy(), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		return err
	})
}

func (k *keeper) create(ctx context.Context) error {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": beaconGroup + "/" + beacons.Version, "kind": "Beacon",
		"metadata": map[string]any{"name": beaconName, "annotations": map[string]any{reloadAnnotation: "auto"}},
		"spec":     map[string]any{"secretName": "oil"},
	}}
	return try(ctx, "creating the Beacon", func(ctx context.Context) error {
		_, err := k.objects.Resource(beacons).Namespace(k.b.namespace).Create(ctx, o.DeepCopy(), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		return err
	})
}

// withdraw deletes the definition, and with it the Beacon.
func (k *keeper) withdraw(ctx context.Context) error {
	k.stage.logf("the definition goes")
	return try(ctx, "deleting the definition", func(ctx context.Context) error {
		err := k.objects.Resource(definitions).Delete(ctx, beacons.Resource+"."+beaconGroup, metav1.DeleteOptions{})
		if err == nil {
			err = errors.New("it is being deleted")
		}
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return err
	})
}

// awaitRecord waits until the journal shows the first record, and awaitRestart until it shows that the Beacon was restarted with the
// current content.
func (k *keeper) awaitRecord(ctx context.Context) error {
	return k.await(ctx, "waiting for the record of the Beacon", func() bool { return k.b.exists && k.b.recorded })
}

func (k *keeper) awaitRestart(ctx context.Context) error {
	return k.await(ctx, "waiting for the restart of the Beacon", func() bool { return k.b.exists && k.b.read == k.b.content })
}

func (k *keeper) await(ctx context.Context, what string, is func() bool) error {
	return try(ctx, what, func(ctx context.Context) error {
		err := errors.New("the journal does not show it")
		return errors.Join(k.stage.judge(ctx, func() {
			if is() {
				err = nil
			}
		}), err)
	})
}

// awaitGone waits until no replica shows the Beacon, which the journal must show as deleted.
func (k *keeper) awaitGone(ctx context.Context) error {
	if err := k.await(ctx, "waiting for the end of the Beacon", func() bool { return !k.b.exists }); err != nil {
		return err
	}
	for _, r := range server.Replicas {
		client, err := versioned.NewForConfig(directly(r))
		if err != nil {
			return err
		}
		if err := try(ctx, "waiting for the end of the Beacon at "+r.Name(), func(ctx context.Context) error {
			_, err := client.ConfigdepV1alpha1().ConfigDependencies(k.b.namespace).Get(ctx, "beacon."+beaconName, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err == nil:
				return errors.New("it is shown")
			default:
				return err
			}
		}); err != nil {
			return err
		}
	}
	return nil
}
