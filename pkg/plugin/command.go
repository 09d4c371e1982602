// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/version"
)

// Run runs the plugin and returns its exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	streams.In = &interruptible{streams.In, ctx}
	c := New(streams)
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	var silent *exit
	if err != nil && (!errors.As(err, &silent) || silent.error != nil) {
		fmt.Fprintln(streams.ErrOut, "error:", printers.EscapeTerminal(reached(err).Error()))
	}
	return codeOf(ctx, err)
}

// interruptible is an input of which reads end with a context.
type interruptible struct {
	io.Reader

	ctx context.Context
}

func (r *interruptible) Read(p []byte) (n int, err error) {
	done := make(chan struct{})
	buffer := make([]byte, len(p)) // the read may outlast the call
	go func() {
		defer close(done)
		n, err = r.Reader.Read(buffer)
	}()
	select {
	case <-done:
		return copy(p, buffer[:n]), err
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
}

// New returns the command kubectl configdep.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	// Commands send few requests, and wait for a time that the rate limiter would take for too short.
	config := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.QPS = -1
		return c
	})
	p := &plugin{IOStreams: streams, config: config}
	c := &cobra.Command{
		Use:   "kubectl-configdep",
		Short: "Shows what runs with old content of ConfigMaps and Secrets, and restarts it",
		Long: `kubectl configdep shows which workloads run with old content of ConfigMaps and
Secrets, why, and what a change would restart. It creates Reloads, and waits until
pods run with the current content.

Workloads are named as for kubectl: deploy/web, deployment/web or deployment.web;
sources as secret/db or configmap/app.`,
		Version:      version.Version(),
		SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl configdep"},
	}
	c.SetIn(streams.In)
	c.SetOut(streams.Out)
	c.SetErr(streams.ErrOut)
	p.config.AddFlags(c.PersistentFlags())
	p.completes(c, "namespace", p.completeNamespaces)
	for _, add := range commands {
		c.AddCommand(add(p))
	}
	return c
}

// commands are the commands, in the order in which they are documented.
var commands = []func(*plugin) *cobra.Command{newStale, newWhy, newPods, newWho, newImpact, newTree, newGraph, newMissing, newUnused, newPlan, newReload, newApprove, newDeny, newWait, newCheck, newReport, newConvertValues}

// plugin is what all commands share.
type plugin struct {
	genericiooptions.IOStreams

	config   *genericclioptions.ConfigFlags
	all      bool   // namespaces
	selector string // of labels
	print    *genericclioptions.PrintFlags
}

// lists adds the flags of a command that lists workloads.
func (p *plugin) lists(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "Look in all namespaces.")
	c.Flags().StringVarP(&p.selector, "selector", "l", "", "Only workloads with these labels.")
	return c
}

// namespace returns the namespace of the command; empty: all.
func (p *plugin) namespace() (string, error) {
	if p.all {
		return "", nil
	}
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// configdep returns a client of the API of configdep.
func (p *plugin) configdep() (configdepv1alpha1.ConfigdepV1alpha1Interface, error) {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return configdepv1alpha1.NewForConfig(config)
}

// kube returns a client of the API of Kubernetes.
func (p *plugin) kube() (kubernetes.Interface, error) {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// find returns the name of the ConfigDependency of a workload, and a client for its namespace.
func (p *plugin) find(workload string) (name string, client configdepv1alpha1.ConfigDependencyInterface, err error) {
	if name, err = parseWorkload(workload); err != nil {
		return "", nil, err
	}
	namespace, err := p.namespace()
	if err != nil {
		return "", nil, err
	}
	all, err := p.configdep()
	if err != nil {
		return "", nil, err
	}
	return name, all.ConfigDependencies(namespace), nil
}

// get returns the ConfigDependency of a workload.
func (p *plugin) get(ctx context.Context, workload string) (*v1alpha1.ConfigDependency, error) {
	name, client, err := p.find(workload)
	if err != nil {
		return nil, err
	}
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	return o, explain(err)
}

// list returns the ConfigDependencies that the flags of the command select, and that use a source; nil: any.
func (p *plugin) list(ctx context.Context, uses *sourceName) ([]*v1alpha1.ConfigDependency, error) {
	namespace, err := p.namespace()
	if err != nil {
		return nil, err
	}
	return p.listIn(ctx, namespace, uses)
}

func (p *plugin) listIn(ctx context.Context, namespace string, uses *sourceName) (out []*v1alpha1.ConfigDependency, err error) {
	client, err := p.configdep()
	if err != nil {
		return nil, err
	}
	o := metav1.ListOptions{LabelSelector: p.selector}
	if uses != nil {
		o.FieldSelector = fields.OneTermEqualSelector("source", uses.String()).String()
	}
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.ConfigDependencies(namespace).List(ctx, o)
	}
	err = pager.New(page).EachListItem(ctx, o, func(each runtime.Object) error {
		if o, ok := each.(*v1alpha1.ConfigDependency); ok {
			out = append(out, o)
		}
		return nil
	})
	return out, explain(err)
}

// where returns the namespace in a sentence.
func (p *plugin) where() string {
	namespace, _ := p.namespace() // an error has been returned earlier
	return in(namespace)
}

func in(namespace string) string {
	if namespace == "" {
		return "in any namespace"
	}
	return "in namespace " + namespace
}

// users returns the ConfigDependencies that use a source.
func (p *plugin) users(ctx context.Context, arg string) (sourceName, []*v1alpha1.ConfigDependency, error) {
	source, err := parseSource(arg)
	if err != nil {
		return source, nil, err
	}
	users, err := p.list(ctx, &source)
	return source, users, err
}
