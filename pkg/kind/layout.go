// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/dependency"
)

// layout is where things are in the objects of a kind that a Descriptor describes.
type layout struct {
	tree           *node
	templates      []Path
	restarted      int      // the number of the pod template whose annotations restart an object, from 1; 0: those of none do
	templateFields []string // see dependency.Object
	sources        []source
	status         *status // nil: it is not known
	unless         Path
	noRollout      []fieldTest
	from           *templateFrom // nil: pods have the object's own template
	labels         map[string]string
	revision       Path
}

// fieldTest is a FieldTest: one of the values is value, or if it is negated, none is.
type fieldTest struct {
	path  Path
	value string
	not   bool
	text  string // as a clause
}

// keepsPods returns why a change of the pod template does not replace the pods of an object, as a clause; "": it does.
func (l *layout) keepsPods(o Object) string {
	c, ok := o.(*custom)
	if !ok {
		return ""
	}
	for i := range l.noRollout {
		test, found := &l.noRollout[i], false
		test.path.Each(c.values, func(value any) bool {
			found = textFrom(value) == test.value
			return !found
		})
		if found != test.not {
			return test.text
		}
	}
	return ""
}

// source is where objects name sources.
type source struct {
	kind                 dependency.SourceKind
	name, namespace, key Path
	text                 string // the path of the name
	keyName              string
	optional             bool
}

// templateFrom is where objects name the object whose pod template their pods have.
type templateFrom struct{ apiVersion, kind, name Path }

func (f *templateFrom) of(values any) *dependency.TemplateReference {
	if f == nil {
		return nil
	}
	text := func(p Path) string { s, _ := p.get(values).(string); return s }
	if text(f.name) == "" {
		return nil
	}
	return &dependency.TemplateReference{APIVersion: text(f.apiVersion), Kind: text(f.kind), Name: text(f.name)}
}

// read implements Kind.From.
func (l *layout) read(o Object) (*dependency.Object, error) {
	c, ok := o.(*custom)
	if !ok || c.layout != l {
		return nil, fmt.Errorf("a %T came instead of an object of the kind", o)
	}
	out := &dependency.Object{
		Meta: &c.ObjectMeta, Template: &corev1.PodTemplateSpec{}, TemplateFields: l.templateFields,
		Truncated: c.truncated, Status: l.statusOf(c), TemplateFrom: l.from.of(c.values),
	}
	out.TemplateRevision = l.revisionOf(o)
	own := l.ownTemplate(c)
	for _, t := range slices.Concat(c.templates...) {
		if t == own {
			out.Template = t
		} else {
			out.Others = append(out.Others, t)
		}
	}
	for i := range l.sources {
		if !l.sources[i].each(c, func(n dependency.Named) bool {
			if len(out.Named) == dependency.MaxUses {
				out.Truncated = true
				return false
			}
			out.Named = append(out.Named, n)
			return true
		}) {
			break
		}
	}
	return out, nil
}

// ownTemplate returns the pod template of an object that has the marks of restarts: the one whose annotations restart it, or the
// first one if those of none do; nil: it lacks that one.
func (l *layout) ownTemplate(c *custom) *corev1.PodTemplateSpec {
	templates := slices.Concat(c.templates...)
	if l.restarted > 0 {
		templates = c.templates[l.restarted-1]
	}
	if len(templates) == 0 {
		return nil
	}
	return templates[0]
}

// lacksTemplate reports whether an object has no pod template whose annotations restart it. A patch of them would add one.
func (l *layout) lacksTemplate(o Object) bool {
	c, ok := o.(*custom)
	return ok && l.restarted > 0 && l.ownTemplate(c) == nil
}

// each calls f for each source that an object names, until f returns false.
func (s *source) each(c *custom, f func(dependency.Named) bool) bool {
	return s.name.eachWithin([]any{c.values}, func(within []any, value any) bool {
		text, _ := value.(string)
		namespace, name, key := split(text)
		if !s.namespace.IsZero() && namespace == "" {
			namespace, _ = s.namespace.getWithin(within).(string)
		}
		if len(validation.IsDNS1123Subdomain(name)) != 0 || namespace != "" && namespace != c.Namespace {
			return true
		}
		if !s.key.IsZero() && key == "" {
			key, _ = s.key.getWithin(within).(string)
		}
		return f(dependency.Named{Kind: s.kind, Name: name, Key: cmp.Or(key, s.keyName), Optional: s.optional, Path: s.text})
	})
}

// split returns the parts of NAMESPACE/NAME/KEY. Any other text is a name alone, which no object can have if it has a slash: of two parts,
// it is not known what they are.
func split(text string) (namespace, name, key string) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[0] == "" || len(validation.IsConfigMapKey(parts[2])) != 0 {
		return "", text, ""
	}
	return parts[0], parts[1], parts[2]
}

// revisionOf returns the label of the pods that have the current template; empty: it is not known.
func (l *layout) revisionOf(o Object) string {
	c := o.(*custom)
	if l.revision.IsZero() || !l.isObserved(c) {
		return ""
	}
	return textFrom(l.revision.get(c.values))
}

// isFixed reports whether an object cannot be reloaded.
func (l *layout) isFixed(o Object) bool {
	c, ok := o.(*custom)
	if !ok || l.unless.IsZero() {
		return false
	}
	switch value := l.unless.get(c.values).(type) {
	case nil:
		return false
	case string:
		return value != ""
	case bool:
		return value
	default:
		return true
	}
}
