// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/term"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// many is how many workloads are restarted without a question.
const many = 5

// reloading is what the flags of reload say.
type reloading struct {
	*plugin

	uses, reason, dryRun string
	stale, yes, wait     bool
	timeout              time.Duration
}

func newReload(p *plugin) *cobra.Command {
	r := &reloading{plugin: p, timeout: 10 * time.Minute}
	c := &cobra.Command{
		Use:   "reload WORKLOAD... | -l SELECTOR | --uses SOURCE | --stale",
		Short: "Restarts workloads, so that their pods read the current content",
		Long: `Creates a Reload for each of the workloads: those that are named, or that labels or a source
select. The server restarts them with its own rights; the user needs the right to create
configdependencies/reload, and to get or, if they are selected, to list configdependencies.

Before more than five workloads are restarted, the command asks. It ends with code 3 if
some Reloads failed, or if pods of a selected workload run with old content, and it is of
a kind that cannot be restarted.`,
		Example: `  # Restart one
  kubectl configdep reload deploy/web --reason "rotated by hand"

  # Restart what still runs with the old Secret, and wait for it
  kubectl configdep reload --uses secret/db --stale --wait`,
		ValidArgsFunction: p.completeWorkloads,
		RunE:              func(c *cobra.Command, args []string) error { return r.run(c.Context(), args) },
	}
	f := c.Flags()
	f.StringVar(&r.uses, "uses", "", "The workloads that use this source, such as secret/db.")
	p.completes(c, "uses", p.completeSources)
	f.BoolVar(&r.stale, "stale", false, "Only what is known to run with old content; with --uses, of that source.")
	f.StringVar(&r.reason, "reason", "", "Why, for the event and status.lastReload; at most 256 characters.")
	f.StringVar(&r.dryRun, "dry-run", "none", "With server, nothing is changed, but the requests are checked. One of none and server.")
	f.BoolVarP(&r.yes, "yes", "y", false, "Do not ask.")
	f.BoolVar(&r.wait, "wait", false, "Wait until all pods run with the current content.")
	f.DurationVar(&r.timeout, "timeout", r.timeout, "How long to wait with --wait.")
	return p.lists(c)
}

func (r *reloading) run(ctx context.Context, args []string) error {
	options := metav1.CreateOptions{}
	switch r.dryRun {
	case "none":
	case "server":
		options.DryRun = []string{metav1.DryRunAll}
	default:
		return fmt.Errorf("--dry-run=%s: want none or server", r.dryRun)
	}
	if r.wait && r.timeout <= 0 {
		return errNoTimeout
	}
	targets, err := r.targets(ctx, args)
	if err != nil || len(targets) == 0 {
		return err
	}
	if r.dryRun == "none" {
		if err := r.ask(targets); err != nil {
			return err
		}
	}
	done, err := r.reload(ctx, targets, options, len(args) == 0)
	if codeOf(ctx, err) == exitInterrupted || !r.wait || r.dryRun != "none" || len(done) == 0 {
		return err
	}
	if failed := r.follow(ctx, done); failed != nil {
		return failed
	}
	return err
}

// isStaleBy reports whether pods of a workload are known to run with old content of a source; nil: of any.
func isStaleBy(o *v1alpha1.ConfigDependency, source *sourceName) bool {
	if source == nil {
		return o.Status.Pods.Stale > 0
	}
	_, status := source.of(o)
	return status != nil && status.StalePods > 0
}

// choose returns the workloads that are named, or else those that labels or a source select, and that source.
func (p *plugin) choose(ctx context.Context, args []string, uses string) (out []*v1alpha1.ConfigDependency, source *sourceName, err error) {
	if len(args) > 0 && (uses != "" || p.selector != "" || p.all) {
		return nil, nil, errors.New("name workloads, or select them, but not both")
	}
	for _, each := range args {
		o, err := p.get(ctx, each)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, o)
	}
	if len(args) > 0 {
		return out, nil, nil
	}
	if uses != "" {
		s, err := parseSource(uses)
		if err != nil {
			return nil, nil, err
		}
		source = &s
	}
	out, err = p.list(ctx, source)
	return out, source, err
}

// targets returns what is to be restarted.
func (r *reloading) targets(ctx context.Context, args []string) (out []*v1alpha1.ConfigDependency, err error) {
	if len(args) == 0 && r.uses == "" && r.selector == "" && !r.stale {
		return nil, errors.New("say which workloads: by name, with -l, with --uses, or with --stale")
	}
	out, source, err := r.choose(ctx, args, r.uses)
	if err != nil {
		return nil, err
	}
	if r.stale {
		some, unknown := out[:0], 0
		for _, o := range out {
			switch {
			case isStaleBy(o, source):
				some = append(some, o)
			case o.Status.Pods.Unknown > 0:
				unknown++
			}
		}
		if out = some; unknown > 0 {
			fmt.Fprintf(r.ErrOut, "Of %s, it is not known what the pods run with: without --stale, these are restarted, too.\n", counted(unknown, "workload"))
		}
	}
	if len(out) == 0 {
		fmt.Fprintf(r.ErrOut, "There is nothing to restart %s.\n", r.where())
	}
	inOrder(out)
	return out, nil
}

// ask asks before many workloads are restarted.
func (r *reloading) ask(targets []*v1alpha1.ConfigDependency) error {
	if r.yes || len(targets) <= many {
		return nil
	}
	pods := 0
	for _, o := range targets {
		pods += int(o.Status.Pods.Total)
	}
	what := fmt.Sprintf("%s with %s", counted(len(targets), "workload"), counted(pods, "pod"))
	if in, ok := r.In.(*interruptible); !ok || !term.IsTerminal(in.Reader) {
		return fmt.Errorf("this would restart %s: repeat it with --yes", what)
	}
	fmt.Fprintf(r.ErrOut, "Restart %s? [y/N] ", what)
	answer, err := bufio.NewReader(r.In).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return errors.Join(errors.New("nothing was restarted"), err)
}

// reload creates Reloads, and returns for which workloads it restarts pods.
func (r *reloading) reload(ctx context.Context, targets []*v1alpha1.ConfigDependency, options metav1.CreateOptions, selected bool) (done []*v1alpha1.ConfigDependency, err error) {
	client, err := r.configdep()
	if err != nil {
		return nil, err
	}
	request := v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Reason: r.reason}}
	if r.stale {
		request.Spec.Mode = v1alpha1.ReloadIfStale
	}
	failed, answered, left := 0, 0, 0
	for i, o := range targets {
		one := request
		one.Spec.Preconditions = &v1alpha1.ReloadPreconditions{UID: &o.UID} // the workload that was shown
		answer, failure := client.ConfigDependencies(o.Namespace).Reload(ctx, o.Name, &one, options)
		switch {
		case ctx.Err() != nil:
			return done, &exit{exitInterrupted, fmt.Errorf("interrupted: %d of %d were asked to restart, which goes on", i, len(targets))}
		case selected && cannotRestart(failure):
			answered++
			if o.Status.Pods.Stale > 0 {
				left++
			}
			fmt.Fprintf(r.Out, "%s: not restarted: configdep does not restart a %s\n", r.name(o), o.Spec.WorkloadRef.Kind)
		case failure != nil:
			failed++
			if failure = explain(failure); len(targets) == 1 {
				return nil, failure
			}
			err = failure
			fmt.Fprintf(r.ErrOut, "%s: error: %s\n", r.name(o), safe(failure.Error()))
		case !answer.Status.Triggered:
			answered++
			fmt.Fprintf(r.Out, "%s: not restarted: %s\n", r.name(o), safe(answer.Status.Message))
		default:
			answered++
			done = append(done, o)
			fmt.Fprintf(r.Out, "%s: %s\n", r.name(o), safe(answer.Status.Message))
		}
	}
	switch {
	case failed > 0 && answered > 0:
		return done, &exit{exitPartly, fmt.Errorf("%d of %s failed", failed, counted(len(targets), "Reload"))}
	case failed == 0 && left > 0:
		return done, &exit{exitPartly, fmt.Errorf("%s with stale pods cannot be restarted", counted(left, "workload"))}
	default:
		return done, err
	}
}

// cannotRestart reports whether a workload is of a kind that cannot be restarted. An invalid Reload names the Reload instead.
func cannotRestart(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsInvalid(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "ConfigDependency"
}

// follow waits until workloads that have been restarted run with the current content.
func (r *reloading) follow(ctx context.Context, done []*v1alpha1.ConfigDependency) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	w := waiter{plugin: r.plugin}
	w.selector = ""
	switch err := w.choose(ctx, nil, "", ""); {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return &exit{exitInterrupted, errors.New("interrupted; restarts that have begun continue")}
	case err != nil:
		return err
	}
	for _, o := range done {
		w.keys = append(w.keys, o.Namespace+"/"+o.Name)
	}
	return w.wait(ctx, r.timeout)
}
