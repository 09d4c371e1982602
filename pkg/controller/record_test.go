package controller

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// newLeader is a process that has begun after everything that there is.
func newLeader(c *cluster) {
	c.t.Helper()
	c.newProcess()
	c.synced()
	c.lead()
	c.advance(time.Minute)
	c.took()
	c.told()
}

// restarts returns how many of the requests since the last time were restarts.
func (c *cluster) restarts() (n int) {
	for _, r := range c.took() {
		if strings.Contains(r, " rollout ") && !strings.Contains(r, ": ") {
			n++
		}
	}
	return n
}

func dropRecord(d *appsv1.Deployment) {
	delete(d.Annotations, policy.ConfigHashAnnotation)
	delete(d.Annotations, policy.AppliedSourcesAnnotation)
}

// TestOwnerThatStripsTheRecordWhileContentSettles: the change is remembered, although the pods
// are older than the process and the record is not there any more.
func TestOwnerThatStripsTheRecordWhileContentSettles(t *testing.T) {
	for name, strip := range map[string]func(*appsv1.Deployment){
		"all of it":       dropRecord,
		"a part of it":    func(d *appsv1.Deployment) { delete(d.Annotations, policy.AppliedSourcesAnnotation) },
		"everything":      func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} },
		"again and again": func(d *appsv1.Deployment) { dropRecord(d) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)()
				newLeader(c)
				c.set(secret("db", "2"))
				c.advance(500 * time.Millisecond)
				edit(c, deployment("web", "db"), strip)
				if name == "again and again" {
					edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Labels = map[string]string{"by": "the owner"} })
				}
				if d := c.decision(); d.State == policy.InSync || !d.Stale {
					t.Errorf("stripped: %+v", d)
				}
				c.advance(500 * time.Millisecond)
				c.expect("it has settled", "2m1s rollout web")
				c.advance(time.Hour)
				c.expect("once")
			})
		})
	}
}

// TestOwnerThatStripsTheRecordLosesNoChange: the record never lasts until content settles.
func TestOwnerThatStripsTheRecordLosesNoChange(t *testing.T) {
	for name, before := range map[string]func(*cluster){
		"pods that are older than the process": func(c *cluster) { adopted(c)(); newLeader(c) },
		"pods that are younger":                func(c *cluster) { adopted(c) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				before(c)
				c.owning(stripping(c))
				stripping(c)()
				for i := range 5 {
					c.set(secret("db", fmt.Sprint("changed-", i)))
					c.advance(500 * time.Millisecond)
					stripping(c)()
					c.advance(6 * time.Minute)
					if n := c.restarts(); n != 1 {
						t.Errorf("change %d: %d restarts", i, n)
					}
				}
			})
		})
	}
}

// TestRefusedFirstRecordLosesNoChange: content changes while it cannot be written yet what
// pods run with that are older than the process.
func TestRefusedFirstRecordLosesNoChange(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.set(secret("db", "1"))
		web := deployment("web", "db")
		web.Annotations = nil
		c.set(web)
		newLeader(c)
		c.refusing(func(clienttesting.Action) error { return errRefused })
		edit(c, web, func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
		c.advance(30 * time.Minute)
		if got := c.took(); len(got) == 0 || got[0] != "1m0s baseline web: Forbidden" {
			t.Errorf("got %v", got)
		}
		told := c.told()
		const want = "Warning ConfigRecordFailed Deployment/shop/web: Recording the content that the pods run with was refused and will be tried again: " +
			`deployments.apps "web" is forbidden: quota`
		if len(told) == 0 || told[0] != want {
			t.Errorf("told: %v", told)
		}
		c.expectState("nothing is recorded", policy.Pending, policy.ReasonNotRecorded)
		c.set(secret("db", "2"))
		c.advance(30 * time.Minute)
		if d := c.decision(); d.State == policy.InSync {
			t.Errorf("the pods run with other content, and it says %+v", d)
		}
		c.refusing(nil)
		c.took()
		c.advance(time.Hour)
		if n := c.restarts(); n != 1 {
			t.Errorf("%d restarts", n)
		}
		c.expectState("restarted", policy.InSync, "ContentApplied")
	})
}

// sidecar adds a container that reads all of a ConfigMap.
func sidecar(d *appsv1.Deployment, source string) *appsv1.Deployment {
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{
		Name:    "sidecar",
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: source}}}},
	})
	return d
}

func configMap(name, value string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{Data: map[string]string{"a": value}}
	m.Name = name
	return m
}

// TestMissingSourceLosesNoChangeOfAnother: while one is missing, nothing is recorded, and a
// container that does not need it has read the other.
func TestMissingSourceLosesNoChangeOfAnother(t *testing.T) {
	optIn := func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} }
	for name, before := range map[string]func(*cluster){
		"pods that are older than the process": func(c *cluster) {
			web := sidecar(deployment("web", "db"), "late")
			web.Annotations = nil
			c.set(web)
			newLeader(c)
			edit(c, web, optIn)
		},
		"pods that are younger, and of which a container waits": func(c *cluster) {
			newLeader(c)
			c.set(sidecar(deployment("web", "db"), "late"))
		},
		"the same, opted in later": func(c *cluster) {
			newLeader(c)
			web := sidecar(deployment("web", "db"), "late")
			web.Annotations = nil
			c.set(web)
			edit(c, web, optIn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.set(secret("db", "1"))
				before(c)
				c.advance(time.Minute)
				c.expect("a source is missing")
				c.expectState("a source is missing", policy.Blocked, policy.ReasonSourceMissing)
				c.set(secret("db", "2"))
				c.advance(time.Minute)
				c.set(configMap("late", "1"))
				c.advance(time.Hour)
				if n := c.restarts(); n != 1 {
					t.Errorf("%d restarts", n)
				}
			})
		})
	}
}

// TestContentThatNewPodsReadAndThatThenGoesBack: the record tells of the content that the
// pods before them read, which is the present one again.
func TestContentThatNewPodsReadAndThatThenGoesBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.refusing(func(clienttesting.Action) error { return errRefused })
		c.set(secret("db", "2"))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		c.advance(100 * time.Millisecond)
		c.set(secret("db", "1"))
		c.advance(time.Minute)
		c.refusing(nil)
		c.took()
		c.advance(time.Hour)
		if n := c.restarts(); n != 1 {
			t.Errorf("%d restarts of pods that have read what content was in between", n)
		}
	})
}

// TestRedundantAnnotationAdoptsNothing: the workload was restarted automatically before, by
// default.
func TestRedundantAnnotationAdoptsNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.defaults.Mode = policy.Auto
		c.set(secret("db", "1"))
		web := deployment("web", "db")
		web.Annotations = nil
		c.set(web)
		c.refusing(func(clienttesting.Action) error { return errRefused })
		newLeader(c)
		c.set(secret("db", "2"))
		c.advance(100 * time.Millisecond)
		edit(c, web, func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
		c.advance(time.Minute)
		c.refusing(nil)
		c.took()
		c.advance(time.Hour)
		if n := c.restarts(); n != 1 {
			t.Errorf("%d restarts", n)
		}
	})
}

// readsKey is a template that reads one key of a Secret.
func readsKey(source, key string) corev1.PodTemplateSpec {
	t := template(source)
	t.Spec.Containers[0].EnvFrom = nil
	t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: source}, Key: key,
	}}}}
	return t
}

// TestPausedDeploymentIsEditedAndEditedBack: no pod was started meanwhile, so that a template
// that reads other keys says nothing of them.
func TestPausedDeploymentIsEditedAndEditedBack(t *testing.T) {
	for name, before := range map[string]func(*cluster){
		"pods that are older than the process": func(c *cluster) { newLeader(c) },
		"pods that are younger":                func(*cluster) {},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				db := secret("db", "1")
				db.Data["other"] = []byte("1")
				web := deployment("web", "db")
				web.Spec.Template = readsKey("db", "password")
				c.synced()
				c.set(db)
				c.set(web)
				stop := c.lead()
				c.advance(time.Minute)
				if name != "pods that are younger" {
					stop()
				}
				before(c)
				c.took()
				edit(c, web, func(d *appsv1.Deployment) { d.Spec.Paused = true })
				edit(c, db, func(s *corev1.Secret) { s.Data["password"] = []byte("2") })
				c.advance(time.Minute)
				c.expectState("paused", policy.Blocked, "Paused")
				edit(c, web, func(d *appsv1.Deployment) {
					d.Spec.Template = readsKey("db", "other")
					d.Status.UpdatedReplicas = 0
				})
				c.advance(time.Minute)
				edit(c, web, func(d *appsv1.Deployment) {
					d.Spec.Template = readsKey("db", "password")
					d.Status.UpdatedReplicas = 1
				})
				c.advance(time.Minute)
				c.expect("paused")
				edit(c, web, func(d *appsv1.Deployment) { d.Spec.Paused = false })
				c.advance(time.Hour)
				if n := c.restarts(); n != 1 {
					t.Errorf("%d restarts", n)
				}
			})
		})
	}
}

// TestDeploymentFoundPausedWithAnotherTemplate: when it is resumed, all pods are new, and
// read what is there then.
func TestDeploymentFoundPausedWithAnotherTemplate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)()
		c.hold()
		c.set(secret("db", "2"))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Status.UpdatedReplicas = true, 0
			d.Spec.Template.Spec.Containers[0].Image = "app:2"
		})
		newLeader(c)
		c.expectState("found paused", policy.Blocked, "Paused")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = false })
		c.advance(time.Hour)
		c.expect("resumed", "2m0s baseline web")
		c.set(secret("db", "3"))
		c.advance(time.Hour)
		if n := c.restarts(); n != 1 {
			t.Errorf("%d restarts after the next change", n)
		}
	})
}

// TestNoReplicasAreNotRestarted: only the record is written, and pods that come later have
// read what it says.
func TestNoReplicasAreNotRestarted(t *testing.T) {
	for name, tc := range map[string]struct {
		workload metav1.Object
		scale    func(c *cluster, n int32)
	}{
		"Deployment": {deployment("web", "db"), func(c *cluster, n int32) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
				d.Spec.Replicas = new(n)
				d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = n, n, n
			})
		}},
		"StatefulSet": {statefulSet("web", "db"), func(c *cluster, n int32) {
			edit(c, statefulSet("web", "db"), func(s *appsv1.StatefulSet) {
				s.Spec.Replicas = new(n)
				s.Status.Replicas, s.Status.UpdatedReplicas, s.Status.ReadyReplicas = n, n, n
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				c.set(secret("db", "1"))
				c.set(tc.workload)
				c.lead()
				tc.scale(c, 0)
				c.advance(time.Minute)
				c.expect("no pods run", "0s baseline web")
				for i := range 10 {
					c.set(secret("db", fmt.Sprint("changed-", i)))
					c.advance(time.Minute)
					c.expect("content changes", fmt.Sprintf("%dm0s baseline web", i+1))
				}
				tc.scale(c, 3)
				c.advance(time.Hour)
				c.expect("scaled up")
				c.expectEvents("nothing was restarted")
				c.set(secret("db", "with pods"))
				c.advance(time.Minute)
				c.expect("with pods", "1h11m1s rollout web")
			})
		})
	}
}

// TestLastPodsThatEndAreNotRestarted, and what is recorded of them is kept until they have
// gone: the workload may be scaled up again before.
func TestLastPodsThatEndAreNotRestarted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) })
		c.set(secret("db", "2"))
		c.advance(time.Hour)
		c.expect("the last pod is ending")
		c.expectState("the last pod is ending", policy.Pending, "ScalingDown")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) })
		c.advance(time.Hour)
		c.expect("it has not ended", "1h1m0s rollout web")
	})
}

// TestWhatIsBeingDeletedIsLeftAlone: sources go before the workloads that use them.
func TestWhatIsBeingDeletedIsLeftAlone(t *testing.T) {
	for name, end := range map[string]func(*cluster){
		"the workload": func(c *cluster) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
				d.DeletionTimestamp, d.Finalizers = new(metav1.Now()), []string{"foregroundDeletion"}
			})
		},
		"its namespace": func(c *cluster) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.version++
			ns := &corev1.Namespace{}
			ns.Name, ns.ResourceVersion, ns.DeletionTimestamp = namespace, strconv.FormatUint(c.version, 10), new(metav1.Now())
			if err := c.replay.Set(ns); err != nil {
				c.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)
				c.set(secret("db", "2"))
				c.advance(500 * time.Millisecond)
				end(c)
				c.set(secret("db", "3"))
				c.advance(time.Minute)
				c.remove(live(c, secret("db", "")))
				c.advance(time.Hour)
				c.expect("being deleted")
				c.expectEvents("being deleted")
				c.expectState("being deleted", policy.Unmanaged, policy.ReasonTerminating)
			})
		})
	}
}

// TestRecordOfAWebhookThatLagsIsNoChange: a replica that had not read the last change yet has
// recorded the content before it, in the write by which the workload has opted in.
func TestRecordOfAWebhookThatLagsIsNoChange(t *testing.T) {
	for name, before := range map[string]func(*cluster){
		"pods that are older than the process": newLeader,
		"pods that are younger":                func(c *cluster) { c.lead() },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				c.set(secret("db", "1"))
				web := deployment("web", "db")
				web.Annotations = nil
				c.set(web)
				before(c)
				old := c.present()
				c.set(secret("db", "2"))
				c.advance(time.Minute)
				edit(c, web, func(d *appsv1.Deployment) {
					raw, err := json.Marshal(old.Sources)
					if err != nil {
						t.Fatal(err)
					}
					d.Annotations = map[string]string{
						policy.ReloadAnnotation: "auto", policy.ConfigHashAnnotation: old.Hash, policy.AppliedSourcesAnnotation: string(raw),
					}
				})
				c.advance(time.Hour)
				if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline web") {
					t.Errorf("it has just opted in: %v", got)
				}
				c.set(secret("db", "3"))
				c.advance(time.Hour)
				if n := c.restarts(); n != 1 {
					t.Errorf("%d restarts after the next change", n)
				}
			})
		})
	}
}

// present returns the record of what there is for the Deployment web.
func (c *cluster) present() (r policy.Record) {
	c.t.Helper()
	key := dependency.WorkloadKey{Kind: dependency.Deployment, Namespace: namespace, Name: "web"}
	if !c.index.Read(func(g *dependency.Graph) {
		r = policy.Evaluate(g, c.controller.Digester(), g.Workload(key), c.controller.Defaults).Present()
	}) {
		c.t.Fatal("the index has not read everything")
	}
	return r
}

// TestLosingTheOptInIsTold: kubectl rollout undo to a revision from before it restores the
// annotations of that time.
func TestLosingTheOptInIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		other := deployment("other", "db")
		other.Annotations = nil
		adopted(c)
		c.set(other)
		c.advance(time.Minute)
		c.expectEvents("a workload that has never opted in")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations = nil })
		c.advance(time.Minute)
		c.expectEvents("undone", "Normal ConfigReloadOff Deployment/shop/web: Automatic restarts are off: the annotation configdep.io/reload was removed or set to off. "+
			"(kubectl rollout undo restores the annotations of the older revision.)")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.ObservedGeneration++ })
		c.set(secret("db", "2"))
		c.advance(time.Hour)
		c.expectEvents("it is told once")
		c.expect("nothing is restarted")
	})
}

// TestUndoThatBringsBackAnEviction: the ReplicaSet has kept the names of pods that have long
// gone, and the strategy is another now.
func TestUndoThatBringsBackAnEviction(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(replicaSet("web-a", "1", "uid-web", time.Now()))
		c.set(pod("web-0", "uid-web-a"))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			d.Annotations[policy.RecreatingAnnotation] = "01234567,89abcdef"
		})
		c.advance(time.Hour)
		c.expect("brought back", "1m0s recreated web")
		c.expectEvents("brought back")
		c.expectState("brought back", policy.InSync, "ContentApplied")
	})
}

// TestSeveralRevisionCountersLoseNoChange: the revisions of workloads and those of sources
// have nothing to do with each other.
func TestSeveralRevisionCountersLoseNoChange(t *testing.T) {
	for counters, ahead := range map[string]map[string]uint64{
		"that of workloads is ahead": {"deployments": 50_000},
		"that of sources is ahead":   {"secrets": 50_000},
	} {
		for name, before := range map[string]func(*cluster){
			"pods that are older than the process": func(c *cluster) {
				c.set(deployment("web", "db"))
				several(c)
				c.lead()
			},
			"pods that are younger": func(c *cluster) {
				several(c)
				c.set(deployment("web", "db"))
				c.lead()
			},
			"opted in later": func(c *cluster) {
				web := deployment("web", "db")
				web.Annotations = nil
				c.set(web)
				several(c)
				c.lead()
				c.advance(time.Minute)
				edit(c, web, func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
			},
		} {
			t.Run(counters+", "+name, func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					c.ahead = ahead
					c.newProcess()
					c.set(secret("db", "1"))
					before(c)
					c.advance(time.Minute)
					if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline web") {
						t.Errorf("opting in restarts nothing: %v", got)
					}
					for i := range 5 {
						c.set(secret("db", fmt.Sprint("changed-", i)))
						c.advance(time.Hour)
						if n := c.restarts(); n != 1 {
							t.Errorf("change %d: %d restarts", i, n)
						}
					}
					c.expectState("at last", policy.InSync, "ContentApplied")
				})
			})
		}
	}
}

// several is a process that does not know of one revision counter for all resources.
func several(c *cluster) {
	c.t.Helper()
	c.newProcess()
	c.index.Reset() // forgets what a Replay takes for granted
	c.synced()
	c.index.Read(func(g *dependency.Graph) {
		if !g.SeveralCounters() {
			c.t.Fatal("versions of different resources are compared")
		}
	})
}

// TestRestoreOfEtcdLosesNoChange: revisions go back, below those of our own writes.
func TestRestoreOfEtcdLosesNoChange(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(secret("db", "2"))
		c.advance(time.Hour)
		c.expect("before", "1m1s rollout web")
		c.mu.Lock()
		c.version = 10
		db, web := c.objects["secrets/db"], c.objects["deployments/web"]
		for _, o := range []runtime.Object{db, web} {
			o.(metav1.Object).SetResourceVersion("5")
		}
		if err := c.replay.ListOf("deployments", "10", web.DeepCopyObject()); err != nil {
			t.Fatal(err)
		}
		c.mu.Unlock()
		c.index.Reset()
		c.synced()
		c.set(live(c, deployment("web", "db")))
		c.advance(time.Hour)
		c.expect("restored")
		for i := range 3 {
			c.set(secret("db", fmt.Sprint("restored-", i)))
			c.advance(time.Hour)
			if n := c.restarts(); n != 1 {
				t.Errorf("change %d: %d restarts", i, n)
			}
		}
	})
}

// TestOwnerThatStripsTheRecordOfAChangeThatNobodySaw: content changed while no process ran,
// so that the record alone tells of it.
func TestOwnerThatStripsTheRecordOfAChangeThatNobodySaw(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)()
		c.hold()
		c.set(secret("db", "2"))
		c.refusing(func(clienttesting.Action) error { return errRefused })
		newLeader(c)
		edit(c, deployment("web", "db"), dropRecord)
		c.advance(time.Minute)
		c.refusing(nil)
		c.took()
		c.advance(time.Hour)
		if n := c.restarts(); n != 1 {
			t.Errorf("%d restarts", n)
		}
	})
}
