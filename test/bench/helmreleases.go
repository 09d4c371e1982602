// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/install"
)

const (
	helmRounds      = 5
	helmNamespace   = "helm-releases"
	helmRecords     = 1_000
	helmRecordBytes = 100 << 10
)

// benchmarkHelmReleases measures how much a start gains from excluding the Secrets with Helm's release records. With
// Helm, these are numerous and large, and no pod reads them.
func benchmarkHelmReleases(ctx context.Context, e *environment) (rows []row, err error) {
	n := int(math.Ceil(helmRecords * e.scale))
	if err := e.fillHelmReleases(ctx, n); err != nil {
		return nil, fmt.Errorf("creating Helm's release records: %w", err)
	}
	defer func() {
		err = errors.Join(err, e.client.CoreV1().Secrets(helmNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}()
	e.server().Kill()
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
	const of = "the same with --exclude-secret-types="
	return []row{
		{
			name: "start beside Helm's releases", unit: "s", n: helmRounds, got: ours.time.summary(), floor: floor.time.summary(), floorName: of, limit: limit{ratio: 1},
			note: fmt.Sprintf("from the start of the process to ready, with %d Secrets of type helm.sh/release.v1 of %d KB, and nothing else but what the\n  benchmarks before have left.", n, helmRecordBytes>>10),
		},
		{name: "start beside Helm's releases: memory peak", unit: "MB", n: helmRounds, got: ours.peak.summary(), floor: floor.peak.summary(), floorName: of},
	}, e.awaitServed(ctx)
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
