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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newUnused(p *plugin) *cobra.Command {
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
		RunE: func(c *cobra.Command, _ []string) error { return p.unused(c.Context()) },
	}
	c.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "Look in all namespaces.")
	return c
}

// inNamespace is a source in a namespace.
type inNamespace struct {
	namespace string
	sourceName
}

// othersSecrets selects the Secrets that are no records of others.
const othersSecrets = "type!=" + string(corev1.SecretTypeServiceAccountToken) + ",type!=helm.sh/release.v1,type!=bootstrap.kubernetes.io/token"

func (p *plugin) unused(ctx context.Context) error {
	namespace, err := p.namespace()
	if err != nil {
		return err
	}
	workloads, err := p.listIn(ctx, namespace, nil)
	if err != nil {
		return err
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
		return err
	}
	type row struct {
		inNamespace
		verdict, why string
		created      metav1.Time
	}
	var rows []row
	for kind, selector := range map[v1alpha1.SourceKind]string{v1alpha1.SourceConfigMap: "metadata.name!=kube-root-ca.crt", v1alpha1.SourceSecret: othersSecrets} {
		list, err := p.listMetadata(ctx, resources[kind], namespace, selector)
		if err != nil {
			return err
		}
		for i := range list {
			o := &list[i]
			key := inNamespace{o.Namespace, sourceName{kind, o.Name}}
			if _, is := used[key]; is {
				continue
			}
			verdict, why := judgeUnused(o, unread)
			rows = append(rows, row{key, verdict, why, o.CreationTimestamp})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(p.ErrOut, "Everything is used %s.\n", p.where())
		return nil
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), strings.Compare(a.String(), b.String()))
	})
	t := p.table("SOURCE", "USED", "AGE", "WHY")
	for i := range rows {
		r := &rows[i]
		t.row(r.namespace, r.String(), r.verdict, ago(&r.created), r.why)
	}
	return t.end()
}

// judgeUnused says whether a source is used that no workload uses.
func judgeUnused(o *metav1.PartialObjectMetadata, unread []string) (verdict, why string) {
	const unknown = "unknown"
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
	o := metav1.ListOptions{Limit: 500, FieldSelector: selector}
	for {
		page, err := client.Resource(resource).Namespace(namespace).List(ctx, o)
		if err != nil {
			return nil, err
		}
		if out = append(out, page.Items...); page.Continue == "" {
			return out, nil
		}
		o.Continue = page.Continue
	}
}
