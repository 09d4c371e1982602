// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/configdep/configdep/pkg/dependency"
)

// The limits of a Descriptor.
const (
	maxVersions        = 8
	maxTemplatePaths   = 8
	maxSourceFields    = 64
	maxPodLabels       = 16
	maxStatusTests     = 16
	maxAnnotationValue = 1024
)

// reservedGroups are those groups of Kubernetes itself that could be taken for those of custom resources, and configdep's own: each view
// of a view would be a workload, with a view.
var reservedGroups = sets.New(
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
	"certificates.k8s.io", "configdep.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
	"internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io",
	"scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
)

// New returns the kind that a descriptor describes, or all errors of the descriptor, which is at a path. It changes nothing in d.
func New(d Descriptor, at *field.Path) (*Kind, field.ErrorList) {
	c := compiler{layout: &layout{tree: &node{}}}
	c.identity(&d, at)
	c.podTemplates(d.PodTemplates, at.Child("podTemplates"))
	c.sources(d.Sources, at.Child("sources"))
	c.pods(d.Pods, at.Child("pods"))
	c.reload(&d, at)
	c.status(d.Status, at.Child("status"))
	c.templateFrom(d, at)
	c.restartField(at.Child("reload", "path"))
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	l := c.layout
	k := &Kind{
		Name: dependency.WorkloadKind(d.Kind), Optional: true, Versions: slices.Clone(d.Versions),
		Resource: schema.GroupVersionResource{Group: d.Group, Version: d.Versions[0], Resource: d.Resource},
		Traits: dependency.Traits{
			Rollable: d.Reload.By != ByNone, PerNode: d.PerNode, RestartsAt: d.RestartAt,
			Restart: c.restart, UnknownPods: d.Pods == nil, PodsByLabels: d.Pods != nil && d.Pods.Controller == ControlledByAny, Custom: true, Fields: d.Fields,
		},
		New:    func() Object { return &custom{layout: l} },
		From:   l.read,
		layout: l, progress: l.progress,
	}
	k.Decode = func(raw []byte) (Object, error) {
		o := &custom{layout: l}
		if err := o.UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("reading a %s: %w", k.Name, err)
		}
		return o, nil
	}
	if d.Alias != "" && d.Alias != d.Kind {
		k.Name, k.Kind = dependency.WorkloadKind(d.Alias), d.Kind
	}
	if d.Pods != nil {
		k.RevisionLabel, k.ByReplicaSets = d.Pods.RevisionLabel, d.Pods.Controller == ControlledByReplicaSet
	}
	return k, nil
}

// compiler turns a descriptor into a layout.
type compiler struct {
	layout  *layout
	restart *dependency.Restart
	errs    field.ErrorList
}

func (c *compiler) invalid(at *field.Path, value any, details ...string) {
	for _, detail := range details {
		c.errs = append(c.errs, field.Invalid(at, value, detail))
	}
}

// bounded reports whether a list is not too long.
func (c *compiler) bounded(at *field.Path, n, most int) bool {
	if n > most {
		c.errs = append(c.errs, field.TooMany(at, n, most))
	}
	return n <= most
}

func (c *compiler) identity(d *Descriptor, at *field.Path) {
	switch group := at.Child("group"); {
	case d.Group == "":
		c.errs = append(c.errs, field.Required(group, ""))
	case !strings.Contains(d.Group, "."):
		c.invalid(group, d.Group, "must be the group of a custom resource, which has a dot")
	case reservedGroups.Has(d.Group):
		c.invalid(group, d.Group, "must be the group of a custom resource, not one of Kubernetes or configdep itself")
	default:
		c.invalid(group, d.Group, validation.IsDNS1123Subdomain(d.Group)...)
	}
	c.kindName(d.Kind, at.Child("kind"), true)
	c.kindName(d.Alias, at.Child("alias"), false)
	shown, path := d.Kind, at.Child("kind")
	if d.Alias != "" {
		shown, path = d.Alias, at.Child("alias")
	}
	if slices.ContainsFunc(builtIn, func(k *Kind) bool { return strings.EqualFold(string(k.Name), shown) }) {
		c.invalid(path, shown, "is the name of a kind of Kubernetes itself: set alias to another name")
	}
	if resource := at.Child("resource"); d.Resource == "" {
		c.errs = append(c.errs, field.Required(resource, "the plural of the kind, as in the URLs of the API"))
	} else {
		c.invalid(resource, d.Resource, validation.IsDNS1035Label(d.Resource)...)
	}
	versions := at.Child("versions")
	if len(d.Versions) == 0 {
		c.errs = append(c.errs, field.Required(versions, "at least one version"))
	}
	if !c.bounded(versions, len(d.Versions), maxVersions) {
		return
	}
	for i, v := range d.Versions {
		c.invalid(versions.Index(i), v, validation.IsDNS1035Label(v)...)
		if slices.Contains(d.Versions[:i], v) {
			c.errs = append(c.errs, field.Duplicate(versions.Index(i), v))
		}
	}
}

// kindName checks the name of a kind. In lower case, it is the first part of the names of views.
func (c *compiler) kindName(name string, at *field.Path, required bool) {
	switch {
	case name != "":
		c.invalid(at, name, validation.IsDNS1035Label(strings.ToLower(name))...)
	case required:
		c.errs = append(c.errs, field.Required(at, ""))
	}
}

// path parses a path that need not be there.
func (c *compiler) path(text string, at *field.Path) (p Path, ok bool) {
	if text == "" {
		return Path{}, false
	}
	p, err := ParsePath(text)
	if err != nil {
		if len(text) > maxPathLength {
			text = text[:maxPathLength] + "…"
		}
		c.invalid(at, text, err.Error())
		return Path{}, false
	}
	return p, true
}

// required is path for one that must be there.
func (c *compiler) required(text string, at *field.Path) (p Path, ok bool) {
	if text == "" {
		c.errs = append(c.errs, field.Required(at, "a path such as .spec.template"))
		return Path{}, false
	}
	return c.path(text, at)
}

// single is path for one with a single value, which is kept.
func (c *compiler) single(text string, at *field.Path) Path {
	p, ok := c.path(text, at)
	if !ok {
		return Path{}
	}
	if _, err := p.Names(); err != nil {
		c.invalid(at, text, err.Error())
		return Path{}
	}
	c.layout.tree.at(p).value = true
	return p
}

// inSpec reports whether a path is within a part of the object that its owner writes.
func (c *compiler) inSpec(p Path, at *field.Path) bool {
	if first := p.segments[0]; first.all || slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, first.name) {
		c.invalid(at, p.String(), "must begin with a name other than apiVersion, kind, metadata and status")
		return false
	}
	return true
}

func (c *compiler) podTemplates(paths []TemplatePath, at *field.Path) {
	l := c.layout
	l.templateFields = []string{}
	if !c.bounded(at, len(paths), maxTemplatePaths) {
		return
	}
	for i := range paths {
		at := at.Index(i).Child("path")
		p, ok := c.required(paths[i].Path, at)
		if !ok || !c.inSpec(p, at) {
			continue
		}
		n := l.tree.at(p)
		if n.template > 0 {
			c.errs = append(c.errs, field.Duplicate(at, paths[i].Path))
			continue
		}
		l.templates = append(l.templates, p)
		n.template = len(l.templates)
		// A list may be owned as a whole, so what is within it has no fields of its own.
		last := slices.IndexFunc(p.segments, func(s segment) bool { return s.all })
		if last < 0 {
			last = len(p.segments)
		}
		if name := `"f:` + p.segments[last-1].name + `"`; !slices.Contains(l.templateFields, name) {
			l.templateFields = append(l.templateFields, name)
		}
	}
}

func (c *compiler) sources(all []SourceFields, at *field.Path) {
	if !c.bounded(at, len(all), maxSourceFields) {
		return
	}
	for i := range all {
		f, at := &all[i], at.Index(i)
		s := source{kind: f.Kind, keyName: f.KeyName, optional: f.Optional}
		if !f.Kind.Observed() {
			c.errs = append(c.errs, field.NotSupported(at.Child("kind"), f.Kind, []dependency.SourceKind{dependency.ConfigMap, dependency.Secret}))
		}
		if f.KeyName != "" {
			c.invalid(at.Child("keyName"), f.KeyName, validation.IsConfigMapKey(f.KeyName)...)
		}
		var ok bool
		if s.name, ok = c.required(f.Name, at.Child("name")); !ok {
			continue
		}
		c.layout.tree.at(s.name).value = true
		s.text = s.name.String()
		beside := func(text string, at *field.Path) Path {
			p, ok := c.path(text, at)
			switch {
			case !ok:
				return Path{}
			case !p.sharesAll(s.name):
				c.invalid(at, text, "each [*] must be the same as in name")
				return Path{}
			}
			c.layout.tree.at(p).value = true
			return p
		}
		s.namespace, s.key = beside(f.Namespace, at.Child("namespace")), beside(f.Key, at.Child("key"))
		c.layout.sources = append(c.layout.sources, s)
	}
}

// nameVariable stands for the name of the workload in the labels of its pods.
const nameVariable = "$(name)"

func (c *compiler) pods(p *Pods, at *field.Path) {
	if p == nil {
		return
	}
	switch byLabels := p.Controller == ControlledByAny; {
	case byLabels && len(p.Labels) == 0:
		c.errs = append(c.errs, field.Required(at.Child("labels"), "they alone say which pods are its own if controller is Any"))
	case !byLabels && len(p.Labels) > 0:
		c.errs = append(c.errs, field.Forbidden(at.Child("labels"), "has no meaning unless controller is Any"))
	}
	if c.bounded(at.Child("labels"), len(p.Labels), maxPodLabels) {
		for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
			value := p.Labels[key]
			c.invalid(at.Child("labels"), key, validation.IsQualifiedName(key)...)
			c.invalid(at.Child("labels").Key(key), value, validation.IsValidLabelValue(strings.ReplaceAll(value, nameVariable, "x"))...)
		}
		c.layout.labels = maps.Clone(p.Labels)
	}
	controllers := []PodController{ControlledByWorkload, ControlledByReplicaSet, ControlledByAny}
	if p.Controller != "" && !slices.Contains(controllers, p.Controller) {
		c.errs = append(c.errs, field.NotSupported(at.Child("controller"), p.Controller, controllers))
	}
	if p.RevisionLabel != "" {
		c.invalid(at.Child("revisionLabel"), p.RevisionLabel, validation.IsQualifiedName(p.RevisionLabel)...)
	}
	if (p.RevisionLabel == "") != (p.Revision == "") {
		c.errs = append(c.errs, field.Required(at.Child("revisionLabel"), "revisionLabel and revision must be set together"))
	}
	if p.Controller == ControlledByReplicaSet && p.RevisionLabel == "" {
		c.errs = append(c.errs, field.Required(at.Child("revisionLabel"), "to find the current ReplicaSet"))
	}
	c.layout.revision = c.single(p.Revision, at.Child("revision"))
}

func (c *compiler) reload(d *Descriptor, parent *field.Path) {
	at := parent.Child("reload")
	r := &d.Reload
	used := map[string]bool{}
	switch r.By {
	case "":
		c.errs = append(c.errs, field.Required(at.Child("by"), "TemplateAnnotation, Annotation, Field, Event or None"))
		return
	case ByTemplateAnnotation:
		used["path"] = true
		c.reloadTemplate(d, at)
	case ByAnnotation:
		used["annotation"], used["value"] = true, r.Annotation != ""
		if r.Annotation != "" {
			c.invalid(at.Child("annotation"), r.Annotation, validation.IsQualifiedName(strings.ToLower(r.Annotation))...)
		}
		if len(r.Value) > maxAnnotationValue {
			c.errs = append(c.errs, field.TooLong(at.Child("value"), "", maxAnnotationValue))
		}
		if slices.ContainsFunc(reserved, func(part string) bool { return strings.Contains(r.Annotation, part) }) {
			c.invalid(at.Child("annotation"), r.Annotation, "must not be an annotation of configdep, kubectl, or a tool that configdep replaces")
		}
		c.restart = &dependency.Restart{Annotation: r.Annotation, Value: r.Value}
	case ByField:
		used["path"] = true
		if p, ok := c.required(r.Path, at.Child("path")); ok && c.inSpec(p, at.Child("path")) {
			names, err := p.Names()
			if err != nil {
				c.invalid(at.Child("path"), r.Path, err.Error())
			}
			c.restart = &dependency.Restart{Field: names}
		}
	case ByEvent:
		c.restart = onlyReported
	case ByNone:
		if d.RestartAt {
			c.errs = append(c.errs, field.Forbidden(parent.Child("restartAt"), "cannot be set if reload.by is None"))
		}
	default:
		c.errs = append(c.errs, field.NotSupported(at.Child("by"), r.By,
			[]ReloadBy{ByTemplateAnnotation, ByAnnotation, ByField, ByEvent, ByNone}))
		return
	}
	for _, f := range []struct{ name, value string }{{"path", r.Path}, {"annotation", r.Annotation}, {"value", r.Value}} {
		if f.value != "" && !used[f.name] {
			detail := "has no meaning if by is " + string(r.By)
			if r.By == ByAnnotation && f.name == "value" {
				detail = "requires annotation"
			}
			c.errs = append(c.errs, field.Forbidden(at.Child(f.name), detail))
		}
	}
	if d.Fields && (r.By == ByNone || r.Unless != "") {
		c.errs = append(c.errs, field.Forbidden(parent.Child("fields"), "cannot be true if reload.by is None, or with reload.unless: then fields would not be set; Event restarts nothing, and sets fields"))
	}
	if r.By == ByNone && r.Unless != "" {
		c.errs = append(c.errs, field.Forbidden(at.Child("unless"), "has no meaning if by is None"))
	}
	c.layout.unless = c.single(r.Unless, at.Child("unless"))
	if r.By != ByTemplateAnnotation && len(r.NoRollout) > 0 {
		c.errs = append(c.errs, field.Forbidden(at.Child("noRollout"), "has no meaning if by is "+string(r.By)))
	}
	c.layout.noRollout = c.fieldTests(r.NoRollout, at.Child("noRollout"))
}

func (c *compiler) fieldTests(all []FieldTest, at *field.Path) (out []fieldTest) {
	if !c.bounded(at, len(all), maxStatusTests) {
		return nil
	}
	for i, f := range all {
		at := at.Index(i)
		if (f.Value == "") == (f.Not == "") {
			c.errs = append(c.errs, field.Required(at, "either value or not"))
		}
		p, ok := c.required(f.Path, at.Child("path"))
		if !ok {
			continue
		}
		c.layout.tree.at(p).value = true
		test := fieldTest{path: p, value: f.Value, text: p.String() + " is " + f.Value}
		if f.Not != "" {
			test.value, test.not, test.text = f.Not, true, p.String()+" is not "+f.Not
		}
		out = append(out, test)
	}
	return out
}

// reserved are parts of the keys of annotations that mean something else.
var reserved = []string{"configdep.io/", "reloader.stakater.com/", "pod-reloader.cs.sap.com/", "wave.pusher.com/", "kubectl.kubernetes.io/last-applied-configuration"}

// ordinaryTemplate is the path of a pod template for which Restart is nil.
var ordinaryTemplate = []string{"spec", "template"}

func (c *compiler) reloadTemplate(d *Descriptor, at *field.Path) {
	at = at.Child("path")
	text := d.Reload.Path
	if text == "" {
		if len(d.PodTemplates) != 1 {
			c.errs = append(c.errs, field.Required(at, "which of podTemplates is changed; it is known only if there is one"))
			return
		}
		text = d.PodTemplates[0].Path
	}
	p, err := ParsePath(text)
	if err != nil {
		if d.Reload.Path != "" { // otherwise, it is an error of the pod template
			c.path(text, at)
		}
		return
	}
	names, err := p.Names()
	switch {
	case err != nil:
		c.invalid(at, text, "must not contain [*]: one pod template is changed")
	case !slices.ContainsFunc(d.PodTemplates, func(t TemplatePath) bool {
		other, err := ParsePath(t.Path)
		return err == nil && slices.Equal(other.segments, p.segments)
	}):
		c.invalid(at, text, "must be one of podTemplates")
	default:
		c.layout.restarted = c.layout.tree.at(p).template
		if !slices.Equal(names, ordinaryTemplate) {
			c.restart = &dependency.Restart{Template: names}
		}
	}
}

// restartField refuses a field for the time of restarts that is more than a single value, or is used for something else: it would be
// overwritten. It must be called when all other paths are known.
func (c *compiler) restartField(at *field.Path) {
	if c.restart == nil || c.restart.Field == nil {
		return
	}
	names := c.restart.Field
	member := func(int) bool { return false }
	nodes, within := []*node{c.layout.tree}, false
	c.layout.tree.follow(names, member, func(next []*node) bool {
		nodes = next
		within = slices.ContainsFunc(next, func(n *node) bool { return n.value || n.template > 0 })
		return !within
	})
	leads := slices.ContainsFunc(nodes, func(n *node) bool { return len(n.names) > 0 || n.all != nil })
	switch path := pathOf(names); {
	case len(names) == 1 && names[0] == "spec":
		c.invalid(at, path, "must not be all of spec: it is overwritten")
	case within || leads:
		c.invalid(at, path, "must not be read by another path, nor be part of what is read, nor contain it: it is overwritten")
	}
}

// pathOf returns the path with some names.
func pathOf(names []string) string {
	p := Path{segments: make([]segment, len(names))}
	for i, name := range names {
		p.segments[i].name = name
	}
	return p.String()
}

func (c *compiler) templateFrom(d Descriptor, at *field.Path) {
	from := d.TemplateFrom
	if from == nil {
		return
	}
	at = at.Child("templateFrom")
	for name, path := range map[string]string{"apiVersion": from.APIVersion, "kind": from.Kind, "name": from.Name} {
		if path == "" {
			c.errs = append(c.errs, field.Required(at.Child(name), "the path of a field"))
		}
	}
	if !d.RestartAt {
		c.errs = append(c.errs, field.Forbidden(at, "needs restartAt"))
	}
	c.layout.from = &templateFrom{
		apiVersion: c.single(from.APIVersion, at.Child("apiVersion")), kind: c.single(from.Kind, at.Child("kind")),
		name: c.single(from.Name, at.Child("name")),
	}
}

func (c *compiler) status(s *StatusPaths, at *field.Path) {
	if s == nil {
		return
	}
	c.layout.status = &status{
		observed: c.single(s.ObservedGeneration, at.Child("observedGeneration")),
		replicas: c.single(s.Replicas, at.Child("replicas")), total: c.single(s.Total, at.Child("total")),
		updated: c.single(s.Updated, at.Child("updated")), ready: c.single(s.Ready, at.Child("ready")),
		paused: c.single(s.Paused, at.Child("paused")), partition: c.single(s.Partition, at.Child("partition")),
		complete: c.tests(s.Complete, at.Child("complete")), failed: c.tests(s.Failed, at.Child("failed")),
		held: c.tests(s.Held, at.Child("held")),
	}
	if s.Updated == "" {
		for _, f := range []struct{ name, path string }{{"total", s.Total}, {"partition", s.Partition}} {
			if f.path != "" {
				c.errs = append(c.errs, field.Forbidden(at.Child(f.name), "has no meaning without updated"))
			}
		}
	}
}

func (c *compiler) tests(all []StatusTest, at *field.Path) (out tests) {
	if !c.bounded(at, len(all), maxStatusTests) {
		return nil
	}
	statuses := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}
	for i := range all {
		s, at := all[i], at.Index(i)
		if (s.Condition == "") == (s.Path == "") {
			c.errs = append(c.errs, field.Required(at, "either condition or path"))
			continue
		}
		if s.Path != "" {
			if s.Status != "" || s.Reason != "" {
				c.errs = append(c.errs, field.Forbidden(at, "status and reason have no meaning without condition"))
			}
			if s.Value == "" {
				c.errs = append(c.errs, field.Required(at.Child("value"), ""))
			}
			out = append(out, test{StatusTest: s, path: c.single(s.Path, at.Child("path"))})
			continue
		}
		if s.Value != "" {
			c.errs = append(c.errs, field.Forbidden(at.Child("value"), "has no meaning without path"))
		}
		if s.Status == "" {
			s.Status = metav1.ConditionTrue
		}
		if !slices.Contains(statuses, s.Status) {
			c.errs = append(c.errs, field.NotSupported(at.Child("status"), s.Status, statuses))
		}
		for _, p := range []Path{conditionType, conditionStatus, conditionReason, conditionMessage} {
			c.layout.tree.at(p).value = true
		}
		out = append(out, test{StatusTest: s})
	}
	return out
}
