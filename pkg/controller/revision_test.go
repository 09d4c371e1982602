// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

// written returns the managedFields entry of a write of some fields now.
func written(fields string) []metav1.ManagedFieldsEntry {
	at := metav1.NewTime(time.Now().Truncate(time.Second))
	return []metav1.ManagedFieldsEntry{{Manager: "owner", Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}}
}

// revisionOf returns the metadata of a revision that a controller created at a time.
func revisionOf[T ingesttest.Object](o T, name string, owner types.UID, created time.Time) T {
	yes := true
	o.SetName(name)
	o.SetLabels(map[string]string{"app": "web"})
	o.SetCreationTimestamp(metav1.NewTime(created))
	if owner != "" {
		o.SetOwnerReferences([]metav1.OwnerReference{{UID: owner, Controller: &yes}})
	}
	return o
}

func replicaSet(name, revision string, owner types.UID, created time.Time) *appsv1.ReplicaSet {
	set := revisionOf(&appsv1.ReplicaSet{}, name, owner, created)
	set.Annotations = map[string]string{"deployment.kubernetes.io/revision": revision}
	return set
}

func controllerRevision(name string, revision int64, owner types.UID, created time.Time) *appsv1.ControllerRevision {
	r := revisionOf(&appsv1.ControllerRevision{}, name, owner, created)
	r.Revision = revision
	return r
}

// ofImage adds the template of a DaemonSet that reads db to a ControllerRevision, as the controller stores
// it.
func ofImage(image string, r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	t := template("db")
	t.Spec.Containers[0].Image = image
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": t}})
	if err != nil {
		panic(err)
	}
	r.Data.Raw = data
	return r
}

// TestRevision_WhatChangedFirstWhileNoProcessWatched: content has changed, and a second later the template.
// The revision of the template tells whether the pods were created after the content changed.
func TestRevision_WhatChangedFirstWhileNoProcessWatched(t *testing.T) {
	const web = types.UID("uid-web")
	for name, tc := range map[string]struct {
		workload ingesttest.Object // nil: a Deployment
		objects  func(content time.Time) []ingesttest.Object
		change   func(*appsv1.Deployment)
		want     string
	}{
		"a ReplicaSet created a second after the content": {
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{replicaSet("web-1", "1", web, content.Add(-time.Hour)), replicaSet("web-2", "2", web, content.Add(time.Second))}
			},
			want: "verified",
		},
		"a ReplicaSet created in the same second: its pods may be older": {
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{replicaSet("web-2", "2", web, content)}
			},
			want: "rollout",
		},
		"an old ReplicaSet, reused by a rollback": {
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{replicaSet("web-1", "1", web, content.Add(time.Second)), replicaSet("web-0", "2", web, content.Add(-time.Hour))}
			},
			want: "rollout",
		},
		"no ReplicaSet with the revision": {
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{replicaSet("web-1", "1", web, content.Add(time.Second))}
			},
			want: "rollout",
		},
		"none": {objects: func(time.Time) []ingesttest.Object { return nil }, want: "rollout"},
		"a ReplicaSet of another owner with the same labels": {
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{replicaSet("other-2", "2", "uid-other", content.Add(time.Second)), replicaSet("orphan", "2", "", content.Add(time.Second))}
			},
			want: "rollout",
		},
		"a new ReplicaSet, but the template is newer": {
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{replicaSet("web-2", "2", web, content.Add(time.Second))}
			},
			change: func(d *appsv1.Deployment) { d.Generation, d.Status.ObservedGeneration = 7, 6 },
			want:   "", // not known until its controller has observed the template
		},
		"a ControllerRevision created a second after the content": {
			workload: statefulSet("web", "db"),
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{
					controllerRevision("web-a", 1, web, content.Add(-time.Hour)),
					controllerRevision("web-b", 3, web, content.Add(time.Second)),
					controllerRevision("web-c", 2, web, content.Add(-time.Minute)),
					controllerRevision("other", 4, "uid-other", content.Add(-time.Hour)),
				}
			},
			want: "verified",
		},
		"an old ControllerRevision, reused by a rollback": {
			workload: statefulSet("web", "db"),
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{controllerRevision("web-b", 3, web, content.Add(-time.Hour)), controllerRevision("web-a", 2, web, content.Add(time.Second))}
			},
			want: "rollout",
		},
		"no ControllerRevision": {workload: statefulSet("web", "db"), objects: func(time.Time) []ingesttest.Object { return nil }, want: "rollout"},
		"a ControllerRevision of a template that is not the newest": {
			workload: func() ingesttest.Object {
				s := statefulSet("web", "db")
				s.Generation = 7
				return s
			}(),
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{controllerRevision("web-b", 3, web, content.Add(time.Second))}
			},
			want: "", // as above
		},
		"a ControllerRevision of a DaemonSet": {
			workload: daemonSet("web", "db"),
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{
					ofImage("app:1", controllerRevision("web-a", 2, web, content.Add(-time.Hour))),
					ofImage("app:2", controllerRevision("web-b", 3, web, content.Add(time.Second))),
				}
			},
			want: "verified",
		},
		"a ControllerRevision of a DaemonSet that does not have the highest number yet": {
			workload: daemonSet("web", "db"),
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{
					ofImage("app:2", controllerRevision("web-a", 1, web, content.Add(-time.Hour))),
					ofImage("app:3", controllerRevision("web-b", 2, web, content.Add(time.Second))),
				}
			},
			want: "rollout",
		},
		"a ControllerRevision of a DaemonSet that has not been observed yet": {
			workload: func() ingesttest.Object {
				d := daemonSet("web", "db")
				d.Generation = 7
				return d
			}(),
			objects: func(content time.Time) []ingesttest.Object {
				return []ingesttest.Object{ofImage("app:2", controllerRevision("web-b", 3, web, content.Add(time.Second)))}
			},
			want: "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				workload := tc.workload
				if workload == nil {
					workload = deployment("web", "db")
				}
				content := changeBoth(c, workload.DeepCopyObject().(ingesttest.Object), tc.change)
				for _, o := range tc.objects(content) {
					c.set(o)
				}
				c.newProcess()
				c.synced()
				c.lead()
				if tc.want == "" {
					c.expect("at once")
				} else {
					c.expect("at once", fmt.Sprintf("1m2s %s web", tc.want))
				}
				c.advance(time.Hour)
				c.expect("and nothing else")
			})
		})
	}
}

// TestRevision_WithoutControllerRevisions: if only a ControllerRevision could prove that pods have read the content, they are
// restarted once, in doubt. Deployments have ReplicaSets. No ControllerRevisions are requested.
func TestRevision_WithoutControllerRevisions(t *testing.T) {
	const web = types.UID("uid-web")
	for name, tc := range map[string]struct {
		workload ingesttest.Object
		want     string
	}{
		"a Deployment":  {deployment("web", "db"), "verified"},
		"a StatefulSet": {statefulSet("web", "db"), "rollout"},
		"a DaemonSet":   {daemonSet("web", "db"), "rollout"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				content := changeBoth(c, tc.workload, nil)
				c.set(replicaSet("web-2", "2", web, content.Add(time.Second)))
				c.set(ofImage("app:2", controllerRevision("web-b", 3, web, content.Add(time.Second))))
				c.intercept("list", "controllerrevisions", func(clienttesting.Action) (bool, runtime.Object, error) {
					t.Error("ControllerRevisions are listed")
					return false, nil, nil
				})
				c.noRevisions = true
				c.newProcess()
				c.synced()
				c.lead()
				c.expect("at once", fmt.Sprintf("1m2s %s web", tc.want))
				c.advance(time.Hour)
				c.expect("and nothing else")
			})
		})
	}
}

// changeBoth adopts a workload. Then, while no process watches, it changes content, and two
// seconds later the template. It returns the time of the change of content.
func changeBoth(c *cluster, workload ingesttest.Object, change func(*appsv1.Deployment)) time.Time {
	c.t.Helper()
	c.set(secret("db", "1"))
	c.set(workload)
	stop := c.lead()
	c.advance(time.Minute)
	stop()
	c.took()
	c.hold()
	content := time.Now()
	db := live(c, secret("db", ""))
	db.Data["password"], db.ManagedFields = []byte("2"), written(`{"f:data":{}}`)
	c.set(db)
	c.advance(2 * time.Second)
	switch w := live(c, workload).(type) {
	case *appsv1.Deployment:
		w.Spec.Template.Spec.Containers[0].Image = "app:2"
		w.ManagedFields = written(`{"f:spec":{"f:template":{}}}`)
		w.Annotations["deployment.kubernetes.io/revision"] = "2"
		if change != nil {
			change(w)
		}
		c.set(w)
	case *appsv1.StatefulSet:
		w.Spec.Template.Spec.Containers[0].Image = "app:2"
		w.ManagedFields = written(`{"f:spec":{"f:template":{}}}`)
		w.Status.UpdateRevision = "web-b"
		c.set(w)
	case *appsv1.DaemonSet:
		w.Spec.Template.Spec.Containers[0].Image = "app:2"
		w.ManagedFields = written(`{"f:spec":{"f:template":{}}}`)
		c.set(w)
	}
	return content
}

// TestRevision_LookUpThatFailsIsTriedAgain, and until it succeeds nothing is restarted.
func TestRevision_LookUpThatFailsIsTriedAgain(t *testing.T) {
	for _, resource := range []string{"deployments", "replicasets", "controllerrevisions"} {
		t.Run(resource, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				var workload ingesttest.Object = deployment("web", "db")
				if resource == "controllerrevisions" {
					workload = statefulSet("web", "db")
				}
				content := changeBoth(c, workload, nil)
				c.set(replicaSet("web-2", "2", "uid-web", content.Add(time.Second)))
				c.set(controllerRevision("web-b", 3, "uid-web", content.Add(time.Second)))
				c.newProcess()
				c.synced()
				failing := true
				var tries []string
				verb := map[string]string{"deployments": "get"}[resource]
				if verb == "" {
					verb = "list"
				}
				c.intercept(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					c.mu.Lock()
					defer c.mu.Unlock()
					tries = append(tries, time.Since(c.start).String())
					return failing, nil, apierrors.NewInternalError(fmt.Errorf("etcd"))
				})
				c.lead()
				c.advance(10 * time.Millisecond)
				c.expect("it fails")
				c.mu.Lock()
				failing = false
				c.mu.Unlock()
				c.advance(time.Second)
				c.expect("it works again", "1m2.015s verified web")
				if got := strings.Join(tries, " "); got != "1m2s 1m2.005s 1m2.015s" {
					t.Errorf("attempts at %s", got)
				}
				if log := c.log.String(); !strings.Contains(log, "looking up the revision of") {
					t.Errorf("log lacks the failure: %s", log)
				}
			})
		})
	}
}

// TestRevision_LookUpIsMadeOnlyWhenVersionsDoNotTell: changes that were seen need no look-up.
func TestRevision_LookUpIsMadeOnlyWhenVersionsDoNotTell(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		lookups := 0
		c.intercept("list", "replicasets", func(clienttesting.Action) (bool, runtime.Object, error) {
			lookups++
			return false, nil, nil
		})
		db := live(c, secret("db", ""))
		db.Data["password"], db.ManagedFields = []byte("2"), written(`{"f:data":{}}`)
		c.set(db)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image, d.ManagedFields = "app:2", written(`{"f:spec":{"f:template":{}}}`)
		})
		c.advance(time.Hour)
		c.expect("the pods have read it", "1m0s baseline web")
		c.set(secret("db", "3"))
		c.advance(time.Hour)
		if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "rollout web") {
			t.Errorf("requests after another change = %v", got)
		}
		if lookups > 0 {
			t.Errorf("got %d look-ups", lookups)
		}
	})
}
