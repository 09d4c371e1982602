// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/install"
)

const (
	helmRounds      = 5
	helmNamespace   = "helm-releases"
	helmRecords     = 200
	helmRecordBytes = 500 << 10
)

// benchmarkHelmReleases measures how much a start gains from excluding the Secrets with Helm's release records, and what these
// still cost. With Helm, they are numerous and large, and no pod reads them.
func benchmarkHelmReleases(ctx context.Context, e *environment) (rows []row, err error) {
	n := int(math.Ceil(helmRecords * e.scale))
	e.server().Kill()
	counter, err := newRelay(strings.TrimPrefix(e.cluster.RESTConfig().Host, "https://"), 0)
	if err != nil {
		return nil, err
	}
	defer counter.close()
	counted, err := e.countedReplica(counter)
	if err != nil {
		return nil, err
	}
	without, err := e.countStarts(ctx, counted, counter)
	if err != nil {
		return nil, err
	}
	if err := e.fillHelmReleases(ctx, n); err != nil {
		return nil, fmt.Errorf("creating Helm's release records: %w", err)
	}
	defer func() {
		err = errors.Join(err, e.client.CoreV1().Secrets(helmNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}()
	with, err := e.countStarts(ctx, counted, counter)
	if err != nil {
		return nil, err
	}
	type measured struct {
		replica    *install.Replica
		time, peak samples
	}
	var ours, floor measured
	for _, m := range []struct {
		*measured
		name string
		args []string
	}{{&ours, "without-releases", nil}, {&floor, "with-releases", []string{"--exclude-secret-types="}}} {
		if m.replica, err = e.install.StartExtra("helm-"+m.name, install.ReplicaOptions{Args: m.args}); err != nil {
			return nil, err
		}
		m.replica.Kill()
	}
	for range helmRounds {
		for _, m := range []*measured{&ours, &floor} {
			took, err := e.startOf(ctx, m.replica)
			if err != nil {
				return nil, err
			}
			used, err := memoryOf(m.replica.PID())
			if err != nil {
				return nil, err
			}
			m.replica.Kill()
			m.time.addTime(took, time.Second)
			m.peak = append(m.peak, used.peak)
		}
		say("ready after %.2f s, with the records after %.2f s", ours.time[len(ours.time)-1], floor.time[len(floor.time)-1])
	}
	if _, err := e.restart(ctx); err != nil {
		return nil, err
	}
	const of, none = "the same with --exclude-secret-types=", "the same without them"
	return []row{
		{
			name: "start beside Helm's releases", unit: "s", n: helmRounds, got: ours.time.summary(), floor: floor.time.summary(), floorName: of, limit: limit{ratio: 1},
			note: fmt.Sprintf(`from the start of the process to ready, with %d Secrets of type helm.sh/release.v1 of %d KB, and nothing else but what the
  benchmarks before have left. Bytes are those that kube-apiserver sends until the server is ready, with TLS; what is left of each
  release is its metadata.`, n, helmRecordBytes>>10),
		},
		{name: "beside Helm's releases: bytes", unit: "MB", n: helmRounds, got: with.bytes.summary(), floor: without.bytes.summary(), floorName: none},
		{name: "beside Helm's releases: bytes for each", unit: "kB", n: 1, got: exactly((with.bytes.quantile(0.5) - without.bytes.quantile(0.5)) * 1e3 / float64(n)), limit: limit{value: 1}},
		{name: "beside Helm's releases: memory", unit: "MB", n: helmRounds, got: with.memory.summary(), floor: without.memory.summary(), floorName: none, limit: limit{ratio: 1.1}},
		{name: "start beside Helm's releases: memory peak", unit: "MB", n: helmRounds, got: ours.peak.summary(), floor: floor.peak.summary(), floorName: of},
	}, e.awaitServed(ctx)
}

// countedReplica returns a stopped replica that reaches kube-apiserver through a relay.
func (e *environment) countedReplica(counter *relay) (*install.Replica, error) {
	config := e.cluster.RESTConfig()
	config.Host = "https://" + counter.address()
	kubeconfig, err := e.cluster.KubeconfigFor("counted", config)
	if err != nil {
		return nil, err
	}
	replica, err := e.install.StartExtra("helm-counted", install.ReplicaOptions{Kubeconfig: kubeconfig})
	if err != nil {
		return nil, err
	}
	replica.Kill()
	return replica, nil
}

// counts are measurements of starts, in MB of a million bytes.
type counts struct {
	bytes, memory samples // from kube-apiserver until ready; VmRSS when it has settled
}

// countStarts starts a replica several times, alone, and counts what it receives through the relay.
func (e *environment) countStarts(ctx context.Context, replica *install.Replica, counter *relay) (out counts, err error) {
	for range helmRounds {
		counter.received.Store(0)
		if _, err := e.startOf(ctx, replica); err != nil {
			return out, err
		}
		received := float64(counter.received.Load()) / 1e6
		used, err := e.settledMemoryOf(ctx, func() (memory, error) { return memoryOf(replica.PID()) })
		if err != nil {
			return out, err
		}
		replica.Kill()
		out.bytes, out.memory = append(out.bytes, received), append(out.memory, used.rss)
		say("received %.3f MB until ready, memory %.1f MB", received, used.rss)
	}
	return out, nil
}

func (e *environment) fillHelmReleases(ctx context.Context, n int) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: helmNamespace}}
	if _, err := e.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	return inParallel(ctx, 0, n, func(ctx context.Context, i int) error {
		content := make([]byte, helmRecordBytes) // random, like compressed data
		for at := range content {
			content[at] = byte(rand.N(256))
		}
		record := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sh.helm.release.v1.chart-%d.v1", i), Labels: map[string]string{"owner": "helm", "status": "deployed"}},
			Type:       "helm.sh/release.v1", Data: map[string][]byte{"release": content},
		}
		_, err := e.client.CoreV1().Secrets(helmNamespace).Create(ctx, record, metav1.CreateOptions{})
		return err
	})
}
