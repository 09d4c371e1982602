// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/openapi"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	setfields "github.com/configdep/configdep/pkg/fields"
	"github.com/configdep/configdep/pkg/jsonpatch"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload"
)

// Fields sets fields of custom resources from ConfigMaps and Secrets. It reads the values when they are applied, and keeps none.
type Fields struct {
	client  workload.Client
	schemas schemas

	decoding sync.Mutex // because decoding takes many times as much memory as a value
}

// NewFields returns a Fields that reads and writes with a client.
func NewFields(client workload.Client, c clock.PassiveClock) *Fields {
	return &Fields{client: client, schemas: schemas{client: client, kept: cache.NewLRUExpireCacheWithClock(maxSchemas, c)}}
}

// SetFields is the result of setting fields.
type SetFields struct {
	// Values are those that the fields should have.
	Values []setfields.Value
	// Problem says why they could not be set; empty: they were, or Conflict.
	Problem string
	// Conflict: another field manager owns one of them with another value. Its name is in the metadata of the workload.
	Conflict bool
	// Version is the resourceVersion of the workload after that.
	Version string
}

// Set sets the fields of a workload, and first gives up all fields that were set before if release is true. It returns errors that can be
// retried: those of the API server without their texts, which may quote values. A conflict means that the workload has
// changed.
func (f *Fields) Set(ctx context.Context, w *dependency.Workload, assignments []setfields.Assignment, release bool) (out SetFields, err error) {
	k := f.client.Kinds.Of(w.Kind)
	if k == nil || !k.Traits.Fields {
		return SetFields{Problem: "fields of a " + string(w.Kind) + " cannot be set", Version: w.ResourceVersion}, nil
	}
	out.Version = w.ResourceVersion
	if release {
		if out.Version, err = f.Release(ctx, w); err != nil {
			return out, err
		}
	}
	if out.Problem = unsettable(k, assignments); out.Problem != "" {
		return out, nil
	}
	if out.Values, out.Problem, err = f.values(ctx, w, assignments); err != nil || out.Problem != "" {
		return out, err
	}
	s, err := f.schemas.of(ctx, k.GroupVersionKind())
	if err != nil {
		return out, err
	}
	configuration, err := setfields.Configuration(s, out.Values)
	if err != nil {
		out.Problem = err.Error()
		return out, nil
	}
	return out, f.apply(ctx, k, w, configuration, &out)
}

// unsettable says which of the fields of a kind is never set; empty: none.
func unsettable(k *kind.Kind, assignments []setfields.Assignment) string {
	for i := range assignments {
		p := assignments[i].Path
		names := make([]string, len(p))
		for j := range p {
			names[j] = p[j].Name
		}
		entry := func(j int) bool { return p[j].Keys != nil }
		switch {
		case slices.ContainsFunc(k.TemplatePaths(), func(t kind.Path) bool { return t.LeadsTo(names, entry) }):
			return fmt.Sprintf("%s is in a pod template, whose fields are never set: refer to the source there", p)
		case k.Uses(names, entry): // the value would be the name of a source in views and events, for example
			return fmt.Sprintf("%s is a field that configdep itself uses, as the description of the kind says, and such fields are never set", p)
		}
	}
	return ""
}

// values reads the values of fields, in the order of the assignments, and holds the data of one source at a time.
func (f *Fields) values(ctx context.Context, w *dependency.Workload, assignments []setfields.Assignment) (values []setfields.Value, problem string, err error) {
	values = make([]setfields.Value, len(assignments))
	left := setfields.MaxValues
	for i := range assignments {
		if values[i].Assignment != nil { // from a source that was read before
			continue
		}
		from, problem, err := f.read(ctx, w, &assignments[i])
		if err != nil || problem != "" {
			return nil, problem, err
		}
		for j := i; j < len(assignments); j++ {
			if a := &assignments[j]; a.Kind == assignments[i].Kind && a.Name == assignments[i].Name {
				if a.Kind == setfields.Secret && !setfields.Allowed(from.allow, decide.FieldsTarget(w), a.Key) {
					return nil, fmt.Sprintf("Secret %s does not allow it for the key %s (%s)", a.Name, a.Key, policy.AllowFieldsAnnotation), nil
				}
				if values[j], problem = f.decode(a, from.data, &left); problem != "" {
					return nil, problem, nil
				}
			}
		}
	}
	return values, "", nil
}

// decode returns the value of a field, which takes its part of the bytes that are left.
func (f *Fields) decode(a *setfields.Assignment, data map[string][]byte, left *int) (v setfields.Value, problem string) {
	raw, found := data[a.Key]
	if !found {
		return v, fmt.Sprintf("%s %s lacks the key %s", a.Kind, a.Name, a.Key)
	}
	f.decoding.Lock()
	defer f.decoding.Unlock()
	value, err := a.Decode(raw)
	if err != nil {
		return v, fmt.Sprintf("%s, from the key %s of %s %s: %v", a.Path, a.Key, a.Kind, a.Name, err)
	}
	if *left -= len(fmt.Sprint(value)); *left < 0 {
		return v, fmt.Sprintf("%s, from the key %s of %s %s: all values together have more than %d bytes", a.Path, a.Key, a.Kind, a.Name, setfields.MaxValues)
	}
	return setfields.Value{Assignment: a, Value: value}, ""
}

// source is a Secret or ConfigMap from which fields are set.
type source struct {
	data  map[string][]byte
	allow string // of a Secret: the value of policy.AllowFieldsAnnotation
}

// read reads a source. Single sources are listed by name: the server is authorized to list them, and then needs no right to
// get them.
func (f *Fields) read(ctx context.Context, w *dependency.Workload, a *setfields.Assignment) (s *source, problem string, err error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, a.Name).String()}
	missing := fmt.Sprintf("%s %s is missing", a.Kind, a.Name)
	if a.Kind == setfields.Secret {
		list, err := f.client.CoreV1().Secrets(w.Namespace).List(ctx, options)
		if err != nil {
			return nil, "", workload.Quiet("reading "+string(a.Kind)+" "+a.Name, err)
		}
		i := slices.IndexFunc(list.Items, func(s corev1.Secret) bool { return s.Name == a.Name })
		if i < 0 {
			return nil, missing, nil
		}
		return &source{list.Items[i].Data, policy.AllowFields(list.Items[i].Annotations)}, "", nil
	}
	list, err := f.client.CoreV1().ConfigMaps(w.Namespace).List(ctx, options)
	if err != nil {
		return nil, "", workload.Quiet("reading "+string(a.Kind)+" "+a.Name, err)
	}
	i := slices.IndexFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == a.Name })
	if i < 0 {
		return nil, missing, nil
	}
	data := make(map[string][]byte, len(list.Items[i].Data))
	for key, value := range list.Items[i].Data {
		data[key] = []byte(value)
	}
	return &source{data: data}, "", nil
}

// apply applies a configuration to just the version of the workload that was decided on.
func (f *Fields) apply(ctx context.Context, k *kind.Kind, w *dependency.Workload, configuration map[string]any, out *SetFields) error {
	configuration["apiVersion"], configuration["kind"] = k.GroupVersionKind().ToAPIVersionAndKind()
	// With a version, a workload that was deleted is not created.
	configuration["metadata"] = map[string]any{"namespace": w.Namespace, "name": w.Name, "uid": string(w.UID), "resourceVersion": out.Version}
	data, err := json.Marshal(configuration)
	if err != nil {
		return errors.New("encoding fields failed") // the error may contain a value
	}
	defer clear(data)
	applied, err := f.client.Patch(ctx, k, w.Namespace, w.Name, types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: record.FieldsManager, Force: new(false), FieldValidation: metav1.FieldValidationStrict,
	})
	switch {
	case err == nil:
		out.Version = applied.GetResourceVersion()
		return nil
	case isOwned(err):
		out.Conflict = true
		return nil
	case refuses(err):
		out.Problem = refusedFields(err)
		return nil
	default:
		return workload.Quiet("setting fields", err)
	}
}

// isOwned reports whether a field belongs to another manager, and not that the workload has changed.
func isOwned(err error) bool {
	return apierrors.IsConflict(err) && slices.ContainsFunc(causesOf(err), func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeFieldManagerConflict })
}

// refuses reports whether an error is about what was applied, so that another try is of no use.
func refuses(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}

func causesOf(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}

const maxCauses = 8

// causeField matches what the field of a cause may be. It is the only part of an answer that is passed on.
var causeField = regexp.MustCompile(`^[A-Za-z0-9_.\-/\[\]="']{1,256}$`)

// refusedFields says why an API server has refused fields: its reason, and the names of the fields, but not its text, which may quote
// values.
func refusedFields(err error) string {
	text := "the API server refuses them (" + string(apierrors.ReasonForError(err))
	var named []string
	for _, c := range causesOf(err) {
		if causeField.MatchString(c.Field) && !slices.Contains(named, c.Field) && len(named) < maxCauses {
			named = append(named, c.Field)
		}
	}
	if len(named) > 0 {
		text += ": " + strings.Join(named, ", ")
	}
	return text + "); its answer is not shown, because it may contain values"
}

// Release gives up all fields of a workload that were set: they keep their values, and no manager owns them for configdep. It returns the
// resourceVersion after that.
func (f *Fields) Release(ctx context.Context, w *dependency.Workload) (version string, err error) {
	k := f.client.Kinds.Of(w.Kind)
	if k == nil {
		return "", fmt.Errorf("configdep does not read the kind %s", w.Kind)
	}
	o, err := f.client.Get(ctx, k, w.Namespace, w.Name)
	if err != nil {
		return "", workload.Quiet("reading the workload", err)
	}
	if o.GetUID() != w.UID || o.GetResourceVersion() != w.ResourceVersion {
		return "", apierrors.NewConflict(k.Resource.GroupResource(), w.Name, errors.New("the workload has changed"))
	}
	entries := o.GetManagedFields()
	operations := []jsonpatch.Operation{jsonpatch.Unchanged(o.GetResourceVersion())}
	for i, e := range slices.Backward(entries) {
		if e.Manager == record.FieldsManager {
			operations = append(operations, jsonpatch.Remove(fmt.Sprintf("/metadata/managedFields/%d", i)))
		}
	}
	switch len(operations) - 1 {
	case 0:
		return w.ResourceVersion, nil
	case len(entries): // an empty list would be taken for no change
		operations = append(operations[:1], jsonpatch.Add("/metadata/managedFields", []any{struct{}{}}))
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return "", err
	}
	released, err := f.client.Patch(ctx, k, w.Namespace, w.Name, types.JSONPatchType, data, metav1.PatchOptions{FieldManager: record.FieldManager})
	if err = workload.Tested(k, w.Name, err); err != nil {
		return "", workload.Quiet("giving up fields", err)
	}
	return released.GetResourceVersion(), nil
}

// schemas reads the schemas of kinds, each once at a time, and keeps them for a moment: many workloads may get fields from one source.
type schemas struct {
	client  workload.Client
	reading singleflight.Group
	kept    *cache.LRUExpireCache
}

// The limits of what is kept.
const (
	maxSchemas = 8
	schemaLife = time.Minute
)

func (s *schemas) of(ctx context.Context, gvk schema.GroupVersionKind) (*setfields.Schema, error) {
	if kept, found := s.kept.Get(gvk); found {
		return kept.(*setfields.Schema), nil //nolint:forcetypeassert // it is what read adds
	}
	read := s.reading.DoChan(gvk.String(), func() (any, error) { return s.read(gvk) })
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-read:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*setfields.Schema), nil //nolint:forcetypeassert // it is what read returns
	}
}

func (s *schemas) read(gvk schema.GroupVersionKind) (*setfields.Schema, error) {
	document, err := documentOf(s.client.Discovery().OpenAPIV3(), gvk.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("reading the schema of a %s: %w", gvk.Kind, err)
	}
	parsed, err := setfields.ParseSchema(document, gvk)
	if err != nil {
		return nil, err
	}
	s.kept.Add(gvk, parsed, schemaLife)
	return parsed, nil
}

func documentOf(client openapi.Client, gv schema.GroupVersion) ([]byte, error) {
	paths, err := client.Paths()
	if err != nil {
		return nil, err
	}
	path, found := paths["apis/"+gv.String()]
	if !found {
		return nil, fmt.Errorf("the API server has no OpenAPI document of %s", gv)
	}
	return path.Schema("application/json")
}
