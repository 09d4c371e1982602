// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// edit is a change of a source.
type edit struct {
	sourceName

	namespace string   // empty: all
	keys      []string // that change, in order; nil: all
}

func newImpact(p *plugin) *cobra.Command {
	var keys, files []string
	form := ""
	c := &cobra.Command{
		Use:   "impact SOURCE | -f FILE",
		Short: "Lists what a change of a ConfigMap or Secret would restart, and what not",
		Long: `Lists the workloads that a change of a ConfigMap or Secret would restart, and those that use
it and would not be restarted, with the reason.

With -f, the keys that change are those in which the file differs from the cluster. They
are compared with what the user may get; without that right, every key of the file
counts as changed, and the output says so. Objects that name no namespace are in that of
--namespace.`,
		Example: `  # What a new password would restart
  kubectl configdep impact secret/db --key password

  # What this file would restart
  kubectl configdep impact -f changed.yaml`,
		ValidArgsFunction: once(p.completeSources),
		RunE: func(c *cobra.Command, args []string) error {
			edits, err := p.edits(c.Context(), args, keys, files)
			if err != nil {
				return err
			}
			all := []affected{}
			var names []string
			for i, each := range edits {
				some, err := p.affected(c.Context(), each)
				if err != nil {
					return err
				}
				for _, a := range some {
					if a.Restarts {
						names = append(names, a.Workload)
					}
				}
				if all = append(all, some...); form != "" {
					continue
				}
				if i > 0 {
					fmt.Fprintln(p.Out)
				}
				if err := p.impact(each, some); err != nil {
					return err
				}
			}
			return p.data(form, all, names)
		},
	}
	p.forms(c, &form, "With name, the workloads that would be restarted.")
	c.Flags().StringSliceVar(&keys, "key", nil, "Only these keys change.")
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "Files with ConfigMaps and Secrets as they would be; - is standard input.")
	return p.lists(c)
}

// edits returns the changes that the arguments describe.
func (p *plugin) edits(ctx context.Context, args, keys, files []string) ([]edit, error) {
	switch {
	case len(files) > 0 && (len(args) > 0 || len(keys) > 0 || p.all):
		return nil, errors.New("files say which sources, keys and namespaces change: leave out a source, --key and --all-namespaces")
	case len(files) > 0:
		return p.editsIn(ctx, files)
	case len(args) != 1:
		return nil, errors.New("name one source, such as secret/db, or give a file with -f")
	}
	namespace, err := p.namespace()
	if err != nil {
		return nil, err
	}
	s, err := parseSource(args[0])
	slices.Sort(keys)
	return []edit{{s, namespace, keys}}, err
}

// editsIn returns how the ConfigMaps and Secrets in files differ from the cluster.
func (p *plugin) editsIn(ctx context.Context, files []string) (out []edit, err error) {
	m, err := p.manifests(files)
	if err != nil {
		return nil, err
	}
	for _, f := range m.invalid {
		return nil, fmt.Errorf("%s:%d: %s", f.File, f.Line, f.Message)
	}
	kube, err := p.kube()
	if err != nil {
		return nil, err
	}
	found := false
	for _, o := range m.objects {
		var after, before map[string][]byte
		var of edit
		switch o := o.(type) {
		case *corev1.ConfigMap:
			of, after = edit{sourceName{v1alpha1.SourceConfigMap, o.Name}, o.Namespace, nil}, contentOf(o.Data, o.BinaryData)
			live, failed := kube.CoreV1().ConfigMaps(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
			before, err = contentOf(live.Data, live.BinaryData), failed
		case *corev1.Secret:
			of, after = edit{sourceName{v1alpha1.SourceSecret, o.Name}, o.Namespace, nil}, o.Data
			live, failed := kube.CoreV1().Secrets(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
			before, err = live.Data, failed
		default:
			continue
		}
		found = true
		switch {
		case apierrors.IsForbidden(err):
			fmt.Fprintf(p.ErrOut, "You may not get %s in namespace %s, so each key in the file counts as changed.\n", of, of.namespace)
		case err != nil && !apierrors.IsNotFound(err):
			return nil, err
		}
		if of.keys = differing(before, after); len(of.keys) == 0 {
			fmt.Fprintf(p.ErrOut, "%s in namespace %s is as in the file.\n", of, of.namespace)
			continue
		}
		out = append(out, of)
	}
	if !found {
		return nil, errors.New("the files have no ConfigMap or Secret")
	}
	return out, nil
}

// contentOf returns the content of a ConfigMap or Secret by its keys.
func contentOf(text map[string]string, binary map[string][]byte) map[string][]byte {
	out := map[string][]byte{}
	maps.Copy(out, binary)
	for k, v := range text {
		out[k] = []byte(v)
	}
	return out
}

// differing returns the keys that two contents do not have in common, in order.
func differing(before, after map[string][]byte) (keys []string) {
	for k, v := range after {
		if was, found := before[k]; !found || !bytes.Equal(was, v) {
			keys = append(keys, k)
		}
	}
	for k := range before {
		if _, found := after[k]; !found {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// affected is what a change would do to a workload.
type affected struct {
	Source    string   `json:"source"`
	Keys      []string `json:"keys,omitempty"` // that change; none: any
	Namespace string   `json:"namespace"`
	Workload  string   `json:"workload"`
	Restarts  bool     `json:"restarts"`
	Pods      int      `json:"pods"`
	Why       string   `json:"why"`
}

// affected returns what a change would do to the workloads that use the source.
func (p *plugin) affected(ctx context.Context, of edit) ([]affected, error) {
	users, err := p.listIn(ctx, of.namespace, &of.sourceName)
	if err == nil && len(users) == 0 && of.keys == nil {
		err = p.exists(ctx, of.sourceName)
	}
	inOrder(users)
	out := make([]affected, len(users))
	for i, o := range users {
		is, why := of.restarts(o)
		out[i] = affected{of.String(), of.keys, o.Namespace, shown(o), is, int(o.Status.Pods.Total), why}
	}
	return out, err
}

// impact prints what a change would do.
func (p *plugin) impact(of edit, some []affected) error {
	if len(some) == 0 {
		fmt.Fprintf(p.ErrOut, "No workload %s names %s.\n", in(of.namespace), of)
		return nil
	}
	t := p.table("WORKLOAD", "RESTARTS", "PODS", "WHY")
	restarted, pods := 0, 0
	for _, a := range some {
		word := "no"
		if a.Restarts {
			word = "yes"
			restarted++
			pods += a.Pods
		}
		t.row(a.Namespace, a.Workload, word, strconv.Itoa(a.Pods), a.Why)
	}
	if err := t.end(); err != nil {
		return err
	}
	what := of.String()
	if of.keys != nil {
		what += " (" + strings.Join(of.keys, ", ") + ")"
	}
	_, err := fmt.Fprintf(p.Out, "A change of %s would restart %s with %s.\n", what, counted(restarted, "workload"), counted(pods, "pod"))
	return err
}

// restarts reports whether a change restarts a workload, and why, or why not.
func (of *edit) restarts(o *v1alpha1.ConfigDependency) (is bool, why string) {
	s, status := of.of(o)
	awaited := status != nil && (status.Present != nil && !*status.Present || len(status.MissingKeys) > 0)
	switch {
	case s == nil: // a pattern matches its name
		return o.Spec.Reload.Mode != v1alpha1.ReloadOff, "a pattern matches its name"
	case of.keys != nil && len(s.Keys) > 0 && s.MoreKeys == 0 && !slices.ContainsFunc(of.keys, func(k string) bool { return slices.Contains(s.Keys, k) }):
		return false, "it reads only " + strings.Join(s.Keys, ", ")
	case !s.TriggersReload:
		return false, s.Reason
	case o.Status.State == v1alpha1.StateBlocked && !awaited:
		return false, "on hold: " + o.Status.Reason
	default:
		return true, "strategy " + string(o.Spec.Reload.Strategy)
	}
}
