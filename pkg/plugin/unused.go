// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest"
)

func newUnused(p *plugin) *cobra.Command {
	form := ""
	c := &cobra.Command{
		Use:   "unused",
		Short: "Lists ConfigMaps and Secrets that no workload uses",
		Long: `Lists the ConfigMaps and Secrets that no workload uses, and says where others may use
them: ServiceAccounts, Ingresses, the object that owns them, or programs that select them
by label. Applications that read the API themselves are not seen, so look before you delete.

The user must be allowed to list ConfigMaps and Secrets; only their metadata is read.
Records of Helm releases and tokens of ServiceAccounts are left out.`,
		Example: `  # What could be deleted
  kubectl configdep unused -n shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return p.unused(c.Context(), form) },
	}
	p.forms(c, &form, "With name, those alone that nothing is known to use.")
	c.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "Look in all namespaces.")
	return c
}

// inNamespace is a source in a namespace.
type inNamespace struct {
	namespace string
	sourceName
}

// selectors leave out what is not meant for workloads: records of others, and a copy in each namespace.
var selectors = map[v1alpha1.SourceKind]string{
	v1alpha1.SourceConfigMap: "metadata.name!=kube-root-ca.crt",
	v1alpha1.SourceSecret:    "type!=" + string(corev1.SecretTypeServiceAccountToken) + ",type!=helm.sh/release.v1,type!=bootstrap.kubernetes.io/token",
}

func (p *plugin) unused(ctx context.Context, form string) error {
	workloads, err := p.list(ctx, nil)
	if err != nil {
		return err
	}
	some, err := p.unusedBy(ctx, workloads, []v1alpha1.SourceKind{v1alpha1.SourceConfigMap, v1alpha1.SourceSecret})
	if err != nil {
		return err
	}
	var names []string
	for i := range some {
		if some[i].Used != unknown {
			names = append(names, some[i].Source)
		}
	}
	if form != "" {
		return p.data(form, some, names)
	}
	if len(some) == 0 {
		fmt.Fprintf(p.ErrOut, "Everything is used %s.\n", p.where())
		return nil
	}
	t := p.table("SOURCE", "USED", "AGE", "WHY")
	for i := range some {
		u := &some[i]
		t.row(u.Namespace, u.Source, u.Used, ago(&u.Created), u.Why)
	}
	if err := t.end(); err != nil {
		return err
	}
	fmt.Fprintln(p.ErrOut, "Programs that read the API themselves are not seen.")
	return nil
}

// unusedSource is a source that no workload uses.
type unusedSource struct {
	Namespace string      `json:"namespace"`
	Source    string      `json:"source"`
	Used      string      `json:"used"` // no, or unknown
	Created   metav1.Time `json:"created"`
	Why       string      `json:"why"`
}

// unusedBy returns the sources of some kinds that no workload uses, of all that are in the namespace.
func (p *plugin) unusedBy(ctx context.Context, workloads []*v1alpha1.ConfigDependency, kinds []v1alpha1.SourceKind) ([]unusedSource, error) {
	out := []unusedSource{}
	namespace, err := p.namespace()
	if err != nil {
		return nil, err
	}
	used := map[inNamespace]string{}
	for _, o := range workloads {
		for i := range o.Spec.Sources {
			s := &o.Spec.Sources[i]
			used[inNamespace{o.Namespace, sourceName{s.Kind, s.Name}}] = shown(o)
		}
	}
	unread, err := p.others(ctx, namespace, used)
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		list, err := p.listMetadata(ctx, resources[kind], namespace, selectors[kind])
		if err != nil {
			return nil, err
		}
		for i := range list {
			o := &list[i]
			key := inNamespace{o.Namespace, sourceName{kind, o.Name}}
			if _, is := used[key]; is {
				continue
			}
			verdict, why := judgeUnused(o, unread)
			out = append(out, unusedSource{o.Namespace, key.String(), verdict, o.CreationTimestamp, why})
		}
	}
	slices.SortFunc(out, func(a, b unusedSource) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Source, b.Source))
	})
	return out, nil
}

// resourcesIn returns the kinds of sources that are read.
func resourcesIn(scope ingest.Scope) (out []v1alpha1.SourceKind) {
	if !scope.WithoutConfigMaps {
		out = append(out, v1alpha1.SourceConfigMap)
	}
	if !scope.WithoutSecrets {
		out = append(out, v1alpha1.SourceSecret)
	}
	return out
}

// unknown is the verdict on what others may use.
const unknown = "unknown"

// judgeUnused says whether a source is used that no workload uses.
func judgeUnused(o *metav1.PartialObjectMetadata, unread []string) (verdict, why string) {
	for i := range o.OwnerReferences {
		owner := &o.OwnerReferences[i]
		return unknown, fmt.Sprintf("it belongs to %s %s", owner.Kind, owner.Name)
	}
	var labels []string
	for key := range o.Labels {
		if prefix, _, _ := strings.Cut(key, "/"); prefix != "app.kubernetes.io" && prefix != "helm.sh" && key != "app" {
			labels = append(labels, key)
		}
	}
	slices.Sort(labels)
	switch {
	case len(labels) > 0:
		return unknown, "programs may select it by the label " + labels[0]
	case o.Labels["app.kubernetes.io/name"] == "configdep", strings.HasPrefix(o.Name, "configdep-"):
		return unknown, "configdep itself uses it"
	case o.Namespace == metav1.NamespaceSystem:
		return unknown, "the components of the cluster may read it"
	case len(unread) > 0:
		return unknown, "you may not list " + strings.Join(unread, ", ")
	default:
		return "no", "nothing names it"
	}
}

// others adds what ServiceAccounts and Ingresses use, and returns which of these may not be read.
func (p *plugin) others(ctx context.Context, namespace string, used map[inNamespace]string) (unread []string, err error) {
	kube, err := p.kube()
	if err != nil {
		return nil, err
	}
	accounts, err := kube.CoreV1().ServiceAccounts(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case err != nil && codeOf(ctx, err) == exitForbidden:
		unread = append(unread, "serviceaccounts")
	case err != nil:
		return nil, err
	}
	add := func(namespace, secret, by string) {
		used[inNamespace{namespace, sourceName{v1alpha1.SourceSecret, secret}}] = by
	}
	if err == nil {
		for i := range accounts.Items {
			a := &accounts.Items[i]
			for _, s := range a.ImagePullSecrets {
				add(a.Namespace, s.Name, "serviceaccount/"+a.Name)
			}
			for _, s := range a.Secrets {
				add(a.Namespace, s.Name, "serviceaccount/"+a.Name)
			}
		}
	}
	ingresses, err := kube.NetworkingV1().Ingresses(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case err != nil && codeOf(ctx, err) == exitForbidden:
		return append(unread, "ingresses"), nil
	case err != nil:
		return nil, err
	}
	for i := range ingresses.Items {
		for _, tls := range ingresses.Items[i].Spec.TLS {
			add(ingresses.Items[i].Namespace, tls.SecretName, "ingress/"+ingresses.Items[i].Name)
		}
	}
	return unread, nil
}

// listMetadata returns the metadata of objects.
func (p *plugin) listMetadata(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string) (out []metav1.PartialObjectMetadata, err error) {
	client, err := p.metadata()
	if err != nil {
		return nil, err
	}
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.Resource(resource).Namespace(namespace).List(ctx, o)
	}
	err = pager.New(page).EachListItem(ctx, metav1.ListOptions{FieldSelector: selector}, func(each runtime.Object) error {
		if o, ok := each.(*metav1.PartialObjectMetadata); ok {
			out = append(out, *o)
		}
		return nil
	})
	return out, err
}
