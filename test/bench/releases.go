// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A release writes ConfigMaps and Secrets first, and the Deployments that read them some time later. If the server
// restarts a Deployment in between, it is rolled out twice. These benchmarks make releases with common tools, in
// namespaces whose Deployments differ only in their settle time, and count the rollouts beyond one for each Deployment.

// settleTimes are the values of the settle annotation that are compared; empty: no annotation, which means the server's
// default. The Deployments of a release have them in turn.
var settleTimes = []string{"", "0", "1s", "2s", "3s", "5s", "10s"}

const (
	// releaseQuiet is the time without changes after which a release is over: longer than the longest settle time.
	releaseQuiet = 35 * time.Second
	// farAway is the round-trip time between the API server and a distant tool, such as a CI runner in another region. A
	// request on a new connection takes longer.
	farAway = 50 * time.Millisecond
	// longestSettle is the maximum time that the server waits for content to settle, in settle times.
	longestSettle = 10
	// waveDelay is the time that Argo CD waits between two waves (ARGOCD_SYNC_WAVE_DELAY).
	waveDelay = 2 * time.Second
)

// releaseWay is a tool, a size of the release and a distance to the API server.
type releaseWay struct {
	name  string
	shape releaseShape
	few   bool // only one service for each settle time changes
	// kept: with the server's default, each release results in one rollout, on any machine.
	kept bool
	tool func(s *scene, far string) releaseTool
	far  bool
}

// releaseTool applies all objects of a release.
type releaseTool func(ctx context.Context, r *release) error

var releaseWays = []releaseWay{
	{name: "kubectl apply -k, 200 objects", shape: large, tool: applyK},
	{name: "kubectl apply -k, 200 objects, 50 ms away", shape: large, tool: applyK, far: true},
	{name: "kubectl apply -k, 7 services of 200 objects, 50 ms away", shape: large, few: true, tool: applyK, far: true},
	{name: "helm upgrade, 49 objects", shape: small, kept: true, tool: helmUpgrade},
	{name: "helm upgrade, 49 objects, 50 ms away", shape: small, kept: true, tool: helmUpgrade, far: true},
	{name: "Argo CD, Deployments one wave later", shape: small, kept: true, tool: argoCD(1)},
	{name: "Argo CD, Deployments two waves later", shape: small, kept: true, tool: argoCD(2)},
	{name: "Argo CD, Deployments three waves later", shape: small, kept: true, tool: argoCD(3)},
}

func benchmarkReleases(ctx context.Context, e *environment) ([]row, error) {
	// Tools are compiled before the measurement.
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	e.helm = filepath.Join(root, "hack", "helm.sh")
	if out, err := exec.CommandContext(ctx, e.helm, "version").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building helm: %w: %s", err, out)
	}
	slow, err := newRelay(strings.TrimPrefix(e.cluster.RESTConfig().Host, "https://"), farAway/2)
	if err != nil {
		return nil, err
	}
	defer slow.close()
	config := e.cluster.RESTConfig()
	config.Host = "https://" + slow.address()
	far, err := e.cluster.KubeconfigFor("far", config)
	if err != nil {
		return nil, err
	}
	var rows []row
	for i, way := range releaseWays {
		measured, err := e.playRelease(ctx, fmt.Sprintf("release-%d", i), way, far)
		rows = append(rows, measured...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", way.name, err)
		}
	}
	measured, err := benchmarkLoneSecret(ctx, e)
	return append(rows, measured...), err
}

// moduleRoot returns the folder of this module.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the folder of the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// playRelease installs a release and then upgrades it.
func (e *environment) playRelease(ctx context.Context, name string, way releaseWay, far string) ([]row, error) {
	return e.play(ctx, name, func(s *scene) (rows []row, err error) {
		kubeconfig := e.cluster.Kubeconfig()
		if way.far {
			kubeconfig = far
		}
		write := way.tool(s, kubeconfig)
		r := &release{namespace: s.namespace, dialect: dialects[s.dialect], shape: way.shape, few: way.few}
		defer func() {
			_, deleteErr := e.cluster.Kubectl(ctx, "delete", "services", "--all", "--namespace", s.namespace, "--wait=false")
			err = errors.Join(err, deleteErr)
		}()
		if err := write(ctx, r); err != nil {
			return nil, err
		}
		if err := s.settledFor(ctx, releaseQuiet); err != nil {
			return nil, err
		}
		j, err := s.followWrites(ctx)
		if err != nil {
			return nil, err
		}
		defer j.stop()
		before := map[string]int{}
		for _, name := range r.changing() {
			before[name], _, _, _ = s.of(name)
		}
		r.version++
		started := time.Now()
		if err := write(ctx, r); err != nil {
			return nil, err
		}
		took := time.Since(started)
		if err := s.settledFor(ctx, releaseQuiet); err != nil {
			return nil, err
		}
		return s.judgeRelease(way, r, j, before, took)
	})
}

// judgeRelease returns the rows of a release.
func (s *scene) judgeRelease(way releaseWay, r *release, j *writes, before map[string]int, took time.Duration) ([]row, error) {
	var gaps, silences samples
	extra, deployments, together := map[string]int{}, map[string]int{}, map[string]int{}
	for i, name := range r.changing() {
		gap, silence, err := j.between(r, i)
		if err != nil {
			return nil, err
		}
		gaps.addTime(gap, time.Second)
		silences.addTime(silence, time.Second)
		after, _, _, err := s.of(name)
		if err != nil {
			return nil, err
		}
		settle := settleTimes[i%len(settleTimes)]
		extra[settle] += after - before[name] - 1
		deployments[settle]++
		for _, settle := range settleTimes {
			if d, err := time.ParseDuration(settle); err == nil && (silence >= d || gap >= longestSettle*d) {
				together[settle]++
			}
		}
	}
	rows := []row{
		{
			name: way.name + ": source to template", unit: "s", n: len(gaps), got: gaps.summary(),
			note: fmt.Sprintf("at most %.2f s, from the first write of a source of a Deployment until the write of its template; the tool ran for %.1f s.",
				gaps.quantile(1), took.Seconds()),
		},
		{name: way.name + ": longest silence", unit: "s", n: len(silences), got: silences.summary(),
			note: fmt.Sprintf("at most %.2f s without a write of a ConfigMap, Secret or Deployment, between these two writes.", silences.quantile(1))},
	}
	say("%s: source to template %v s, %s longest silence %v s, %s", way.name, rows[0].got, rows[0].note, rows[1].got, rows[1].note)
	for _, settle := range settleTimes {
		one := row{name: fmt.Sprintf("%s: rollouts too many, settle %s", way.name, orDefault(settle)), n: deployments[settle], got: exactly(float64(extra[settle]))}
		if settle == "" {
			if way.kept {
				one.limit = limit{exact: true, value: 0}
			}
		} else {
			one.note = fmt.Sprintf("this settle time would still be too short for %d of all %d if each write of the release in the namespace restarted it, up to %d times its length.",
				together[settle], len(gaps), longestSettle)
		}
		say("%s: %v of %d; %s", one.name, one.got, one.n, one.note)
		rows = append(rows, one)
	}
	return rows, nil
}

func orDefault(settle string) string {
	if settle == "" {
		return "by default"
	}
	return settle
}

// benchmarkLoneSecret measures the delay by the settle time if no other change follows: a single Secret is written, by
// an operator that rotates it or by the client that applied the Deployments.
func benchmarkLoneSecret(ctx context.Context, e *environment) (rows []row, err error) {
	for _, manager := range []string{"external-secrets", kubectl} {
		measured, err := playLoneSecret(ctx, e, manager)
		rows = append(rows, measured...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func playLoneSecret(ctx context.Context, e *environment, manager string) ([]row, error) {
	const rounds = 3
	return e.play(ctx, "lone-"+manager, func(s *scene) (rows []row, err error) {
		const source = "rotated"
		name := func(i int) string { return fmt.Sprintf("app-%d", i) }
		if err := s.put(ctx, s.secret(source, "0")); err != nil {
			return nil, err
		}
		for i, settle := range settleTimes {
			d := bystander(name(i), reads("", source))
			d.Annotations = optInWith(dialects[s.dialect], settle)
			if err := s.put(ctx, d); err != nil {
				return nil, err
			}
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		delays := make([]samples, len(settleTimes))
		for round := range rounds {
			started := time.Now()
			if err := s.putAs(ctx, manager, s.secret(source, fmt.Sprint(round+1))); err != nil {
				return nil, err
			}
			for i := range settleTimes {
				wait, cancel := context.WithTimeoutCause(ctx, restartLimit, errNoRestart)
				at, err := s.await(wait, name(i), round+1)
				cancel()
				if err != nil {
					return nil, err
				}
				delays[i].addTime(at.Sub(started), time.Second)
			}
		}
		for i, settle := range settleTimes {
			r := row{name: "one Secret is changed by " + manager + ", settle " + orDefault(settle) + ": until the patch", unit: "s", n: rounds, got: delays[i].summary()}
			say("%s: %v s", r.name, r.got)
			rows = append(rows, r)
		}
		return rows, nil
	})
}

// applyK runs kubectl apply -k.
func applyK(s *scene, kubeconfig string) releaseTool {
	return func(ctx context.Context, r *release) error {
		dir := filepath.Join(s.cluster.Dir(), s.namespace)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		objects, err := r.manifests()
		if err != nil {
			return err
		}
		kustomization := "resources: [objects.yaml]\nnamespace: " + r.namespace + "\n"
		if err := errors.Join(
			os.WriteFile(filepath.Join(dir, "objects.yaml"), objects, 0o600),
			os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600),
		); err != nil {
			return err
		}
		return s.runTool(ctx, kubeconfig, s.cluster.KubectlPath(), "apply", "-k", dir)
	}
}

// helmUpgrade runs helm upgrade --install with a chart that has all objects in one template.
func helmUpgrade(s *scene, kubeconfig string) releaseTool {
	return func(ctx context.Context, r *release) error {
		dir := filepath.Join(s.cluster.Dir(), s.namespace)
		if err := os.MkdirAll(filepath.Join(dir, "templates"), 0o700); err != nil {
			return err
		}
		objects, err := r.manifests()
		if err != nil {
			return err
		}
		chart := fmt.Sprintf("apiVersion: v2\nname: shop\nversion: 0.%d.0\n", r.version)
		if err := errors.Join(
			os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(chart), 0o600),
			os.WriteFile(filepath.Join(dir, "templates", "objects.yaml"), objects, 0o600),
		); err != nil {
			return err
		}
		return s.runTool(ctx, kubeconfig, s.helm, "upgrade", "--install", "shop", dir, "--namespace", r.namespace)
	}
}

// runTool runs a tool until it exits.
func (s *scene) runTool(ctx context.Context, kubeconfig, path string, args ...string) error {
	cmd := s.cluster.Command(ctx, path, args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(path), err, out)
	}
	return nil
}

// argoCD applies objects as Argo CD documents: the kinds of a wave one after the other, the objects of a kind at once,
// and a delay between two waves. ConfigMaps and Secrets are in the first wave, Deployments some waves later. It does
// not wait for health, because the objects of the first waves are healthy immediately, nor for the controller of Argo
// CD, which may take longer than the delay.
func argoCD(waves int) func(*scene, string) releaseTool {
	return func(s *scene, _ string) releaseTool {
		return func(ctx context.Context, r *release) error {
			if err := s.putAtOnce(ctx, r.configMaps()); err != nil {
				return err
			}
			if err := s.putAtOnce(ctx, r.secrets()); err != nil {
				return err
			}
			for range waves {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(waveDelay):
				}
			}
			return s.putAtOnce(ctx, r.deployments())
		}
	}
}

func optInWith(d dialect, settle string) map[string]string {
	a := union(d.auto, map[string]string{"configdep.io/min-interval": "0"})
	if settle != "" {
		a["configdep.io/settle"] = settle
	}
	return a
}
