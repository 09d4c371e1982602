// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// matrices are the tests of the storage of kube-apiserver that the cache has to pass.
//
//nolint:thelper // these are the tests
var matrices = []struct {
	name     string
	versions versions
	run      func(context.Context, *testing.T, *store)
	// waits is set for those that wait, and have no subtests: synctest forbids those.
	waits bool
	// alone is set for those that set a feature gate, which only one test may do at a time.
	alone bool
}{
	{name: "RunTestGet", run: plain(storagetesting.RunTestGet)},
	{name: "RunTestGetListNonRecursive", run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, s.progress, s)
	}},
	{name: "RunTestGetListRecursivePrefix", run: plain(storagetesting.RunTestGetListRecursivePrefix)},
	{name: "RunTestNamespaceScopedList", run: plain(storagetesting.RunTestNamespaceScopedList)},
	{name: "RunTestList", versions: asRevisions, run: func(ctx context.Context, t *testing.T, s *store) {
		// Without the watch cache: that one ignores the limit of a list from version 0.
		storagetesting.RunTestList(ctx, t, s, s.compact, false, nil)
	}},
	{name: "RunTestConsistentList", versions: asRevisions, run: func(ctx context.Context, t *testing.T, s *store) {
		// Without the watch cache: a write has always arrived here.
		storagetesting.RunTestConsistentList(ctx, t, s, s.progress, false, true, true)
	}},
	{name: "RunTestListContinuation", versions: asRevisions, run: paged(storagetesting.RunTestListContinuation)},
	{name: "RunTestListContinuationWithFilter", versions: asRevisions, run: paged(storagetesting.RunTestListContinuationWithFilter)},
	{name: "RunTestListPaginationRareObject", run: paged(storagetesting.RunTestListPaginationRareObject)},
	{name: "RunTestListPaging", run: plain(storagetesting.RunTestListPaging)},
	{name: "RunTestListInconsistentContinuation", versions: asRevisions, run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestListInconsistentContinuation(ctx, t, s, s.compact)
	}},
	{name: "RunTestListResourceVersionMatch", versions: asRevisions, run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestListResourceVersionMatch(ctx, t, s)
	}},
	{name: "RunTestStats", run: func(ctx context.Context, t *testing.T, s *store) {
		scheme := runtime.NewScheme()
		utilruntime.Must(example.AddToScheme(scheme))
		utilruntime.Must(examplev1.AddToScheme(scheme))
		codec := serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
		storagetesting.RunTestStats(ctx, t, s, codec, identity.NewEncryptCheckTransformer(), false)
	}},

	{name: "RunTestWatch", run: plain(storagetesting.RunTestWatch)},
	{name: "RunTestWatch", versions: ofNeighbour, run: plain(storagetesting.RunTestWatch)},
	{name: "RunTestWatchFromZero", run: fromZero},
	{name: "RunTestWatchFromZero", versions: ofNeighbour, run: fromZero},
	{name: "RunTestWatchFromNonZero", run: plain(storagetesting.RunTestWatchFromNonZero)},
	{name: "RunTestWatchFromNonZero", versions: ofNeighbour, run: plain(storagetesting.RunTestWatchFromNonZero)},
	{name: "RunTestDeleteTriggerWatch", run: plain(storagetesting.RunTestDeleteTriggerWatch)},
	{name: "RunTestDeleteTriggerWatch", versions: ofNeighbour, run: plain(storagetesting.RunTestDeleteTriggerWatch)},
	{name: "RunTestWatchDeleteEventObjectHaveLatestRV", run: plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV)},
	{name: "RunTestWatchDeleteEventObjectHaveLatestRV", versions: ofNeighbour, run: plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV)},
	{name: "RunTestDelayedWatchDelivery", run: plain(storagetesting.RunTestDelayedWatchDelivery), waits: true},
	{name: "RunTestDelayedWatchDelivery", versions: ofNeighbour, run: plain(storagetesting.RunTestDelayedWatchDelivery), waits: true},
	{name: "RunTestWatcherTimeout", run: plain(storagetesting.RunTestWatcherTimeout)},
	{name: "RunTestWatcherTimeout", versions: ofNeighbour, run: plain(storagetesting.RunTestWatcherTimeout)},
	{name: "RunTestWatchContextCancel", run: plain(storagetesting.RunTestWatchContextCancel)},
	{name: "RunTestWatchInitializationSignal", run: plain(storagetesting.RunTestWatchInitializationSignal)},
	{name: "RunTestClusterScopedWatch", run: plain(storagetesting.RunTestClusterScopedWatch)},
	{name: "RunTestClusterScopedWatch", versions: ofNeighbour, run: plain(storagetesting.RunTestClusterScopedWatch)},
	{name: "RunTestNamespaceScopedWatch", run: plain(storagetesting.RunTestNamespaceScopedWatch)},
	{name: "RunTestNamespaceScopedWatch", versions: ofNeighbour, run: plain(storagetesting.RunTestNamespaceScopedWatch)},
	{name: "RunOptionalTestProgressNotify", run: func(ctx context.Context, t *testing.T, s *store) {
		// The last bookmark comes shortly before the end of a watch, which then has to have one.
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		storagetesting.RunOptionalTestProgressNotify(ctx, t, s, s.progress)
	}, waits: true},
	{name: "RunTestWatchDispatchBookmarkEvents", run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, true)
	}},
	{name: "RunTestOptionalWatchBookmarksWithCorrectResourceVersion", run: plain(storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion), waits: true},
	{name: "RunTestOptionalWatchBookmarksWithCorrectResourceVersion", versions: ofNeighbour, run: plain(storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion), waits: true},
	{name: "RunSendInitialEventsBackwardCompatibility", run: plain(storagetesting.RunSendInitialEventsBackwardCompatibility)},
	// Version 1 is the first of the store there.
	{name: "RunWatchSemantics", versions: asRevisions, run: plain(storagetesting.RunWatchSemantics), alone: true},
	{name: "RunWatchSemanticInitialEventsExtended", run: plain(storagetesting.RunWatchSemanticInitialEventsExtended), alone: true},
	{name: "RunWatchListMatchSingle", run: plain(storagetesting.RunWatchListMatchSingle), alone: true},
}

const (
	writes       = "writes are no part of the cache"
	transformers = "objects in the cache are not stored, so that they cannot be corrupt"
)

// notApplicable are the others, and why.
var notApplicable = map[string]string{
	"RunTestCreate":                                                       writes,
	"RunTestCreateWithTTL":                                                writes,
	"RunTestCreateWithKeyExist":                                           writes,
	"RunTestUnconditionalDelete":                                          writes,
	"RunTestConditionalDelete":                                            writes,
	"RunTestDeleteWithSuggestion":                                         writes,
	"RunTestDeleteWithSuggestionAndConflict":                              writes,
	"RunTestDeleteWithConflict":                                           writes,
	"RunTestDeleteWithSuggestionOfDeletedObject":                          writes,
	"RunTestValidateDeletionWithSuggestion":                               writes,
	"RunTestValidateDeletionWithOnlySuggestionValid":                      writes,
	"RunTestPreconditionalDeleteWithSuggestion":                           writes,
	"RunTestPreconditionalDeleteWithOnlySuggestionPass":                   writes,
	"RunTestGuaranteedUpdate":                                             writes,
	"RunTestGuaranteedUpdateWithTTL":                                      writes,
	"RunTestGuaranteedUpdateChecksStoredData":                             writes,
	"RunTestGuaranteedUpdateWithConflict":                                 writes,
	"RunTestGuaranteedUpdateWithSuggestionAndConflict":                    writes,
	"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError":   transformers,
	"RunTestDeleteExpectedTransformOrDecodeError":                         transformers,
	"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError": transformers,
	"RunTestGetListWithErrorAggregation":                                  transformers,
	"RunTestGetListWithoutErrorAggregation":                               transformers,
	"RunTestTransformationFailure":                                        transformers,
	"RunTestWatchError":                                                   transformers,
	"RunTestWatchWithUnsafeDelete":                                        transformers,
	"RunWatchErrorIsBlockingFurtherEvents":                                transformers,
	"RunTestCompactRevision":                                              "the cache forgets events, and not revisions: a version since which nothing has changed is known for ever",
	"RunTestKeySchema":                                                    "the keys of etcd are no part of the cache",
}

func TestStorageMatrices(t *testing.T) {
	for _, m := range matrices {
		t.Run(m.name+[]string{"", "/neighbour", ""}[m.versions], func(t *testing.T) {
			if !m.alone {
				t.Parallel()
			}
			run := func(t *testing.T) {
				t.Helper()
				m.run(t.Context(), t, newStore(m.versions))
			}
			if m.waits {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

func plain(run func(context.Context, *testing.T, storage.Interface)) func(context.Context, *testing.T, *store) {
	return func(ctx context.Context, t *testing.T, s *store) {
		t.Helper()
		run(ctx, t, s)
	}
}

// paged leaves out the count of reads from etcd.
func paged(run func(context.Context, *testing.T, storage.Interface, storagetesting.CallsValidation)) func(context.Context, *testing.T, *store) {
	return func(ctx context.Context, t *testing.T, s *store) {
		t.Helper()
		run(ctx, t, s, nil)
	}
}

func fromZero(ctx context.Context, t *testing.T, s *store) {
	t.Helper()
	storagetesting.RunTestWatchFromZero(ctx, t, s, s.compact)
}

// TestEveryMatrixIsDecided fails when a new release of Kubernetes brings a test of which
// it was not decided whether the cache has to pass it.
func TestEveryMatrixIsDecided(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing").Output()
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("%d sources, %v", len(sources), err)
	}
	var want []string
	for _, source := range sources {
		parsed, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Run") && !strings.HasPrefix(f.Name.Name, "RunBenchmark") {
				want = append(want, f.Name.Name)
			}
		}
	}
	slices.Sort(want)
	decided := maps.Clone(notApplicable)
	for _, m := range matrices {
		if reason, listed := notApplicable[m.name]; listed {
			t.Errorf("%s is run and listed as not applicable: %s", m.name, reason)
		}
		decided[m.name] = "is run"
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(decided))); diff != "" {
		t.Errorf("tests of the storage (-there +decided):\n%s", diff)
	}
}
