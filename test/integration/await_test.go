// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// view returns a ConfigDependency once every replica shows one that passes all checks.
func view(t *testing.T, namespace, name string, checks ...func(*v1alpha1.ConfigDependency) error) *v1alpha1.ConfigDependency {
	t.Helper()
	return shopIn(t, namespace).view(name, checks...)
}

// write creates a ConfigMap or a Secret with pairs of keys and values, or sets these and keeps the others. It returns the stored object.
func write(t *testing.T, namespace string, r ref, keysAndValues ...string) metav1.Object {
	t.Helper()
	return shopIn(t, namespace).write(r, keysAndValues...)
}

// viewGone waits until no replica shows a ConfigDependency.
func viewGone(t *testing.T, namespace, name string) {
	t.Helper()
	for _, where := range everywhere {
		await.Until(t, fmt.Sprintf("%s shows %s/%s no longer", where.name, namespace, name), func(ctx context.Context) error {
			found, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("still shown, at version %s", found.ResourceVersion)
			}
			return err
		})
	}
}

// source returns the spec and status of one source of a ConfigDependency.
func source(o *v1alpha1.ConfigDependency, kind v1alpha1.SourceKind, name string) (v1alpha1.Source, v1alpha1.SourceStatus, error) {
	for i := range o.Spec.Sources {
		if s := o.Spec.Sources[i]; s.Kind == kind && s.Name == name {
			return s, o.Status.Sources[i], nil
		}
	}
	return v1alpha1.Source{}, v1alpha1.SourceStatus{}, fmt.Errorf("%s has no source %s %s", o.Name, kind, name)
}

// present checks whether a source is shown as present.
func present(kind v1alpha1.SourceKind, name string, want bool) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		_, status, err := source(o, kind, name)
		if err != nil {
			return err
		}
		if status.Present == nil || *status.Present != want {
			return fmt.Errorf("%s %s is not shown as present = %t", kind, name, want)
		}
		return nil
	}
}

// at checks that a ConfigMap or a Secret is shown as it was stored.
func at(o metav1.Object) func(*v1alpha1.ConfigDependency) error {
	kind := v1alpha1.SourceConfigMap
	if _, is := o.(*corev1.Secret); is {
		kind = v1alpha1.SourceSecret
	}
	return func(v *v1alpha1.ConfigDependency) error {
		_, status, err := source(v, kind, o.GetName())
		if err == nil && status.ResourceVersion != o.GetResourceVersion() {
			err = fmt.Errorf("version of %s %s = %q, want %q", kind, o.GetName(), status.ResourceVersion, o.GetResourceVersion())
		}
		return err
	}
}

// resolved checks the status and the reason of the condition SourcesResolved.
func resolved(status metav1.ConditionStatus, reason string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		c, err := condition(o, v1alpha1.ConditionSourcesResolved)
		if err == nil && (c.Status != status || c.Reason != reason) {
			err = fmt.Errorf("condition %s = %s, %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
		return err
	}
}

func condition(o *v1alpha1.ConfigDependency, typ string) (metav1.Condition, error) {
	for _, c := range o.Status.Conditions {
		if c.Type == typ {
			return c, nil
		}
	}
	return metav1.Condition{}, fmt.Errorf("no condition %s", typ)
}

// is checks the state and its reason; an empty reason is any.
func is(state v1alpha1.State, reason string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if o.Status.State != state || reason != "" && o.Status.Reason != reason {
			return fmt.Errorf("state = %s, %s: %s", o.Status.State, o.Status.Reason, o.Status.Message)
		}
		return nil
	}
}

// recorded checks that the current content is known to have been applied, whatever the state.
func recorded(o *v1alpha1.ConfigDependency) error {
	if o.Status.RecordedHash == "" || o.Status.RecordedHash != o.Status.ConfigHash {
		return fmt.Errorf("recordedHash = %q, configHash = %q (%s, %s: %s)", o.Status.RecordedHash, o.Status.ConfigHash, o.Status.State, o.Status.Reason, o.Status.Message)
	}
	return nil
}

// applied checks that the pods are known to run with the current content.
func applied(o *v1alpha1.ConfigDependency) error {
	return errors.Join(recorded(o), is(v1alpha1.StateInSync, "")(o))
}

// restartedFor checks that the last restart was for a source, or for a request.
func restartedFor(trigger string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if last := o.Status.LastReload; last == nil || last.Trigger != trigger {
			return fmt.Errorf("lastReload = %+v, want the trigger %s", last, trigger)
		}
		return nil
	}
}

// newer checks that the content is another one than before.
func newer(before *v1alpha1.ConfigDependency) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if o.Status.ConfigHash == before.Status.ConfigHash {
			return errors.New("the content is the same")
		}
		return nil
	}
}
