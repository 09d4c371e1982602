// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
)

const notAvailable = "its update strategy lets no pod be unavailable"

func TestRead_HowManyPodsMayBeUnavailable(t *testing.T) {
	for name, tc := range map[string]struct {
		value                              *intstr.IntOrString
		deployment, statefulSet, daemonSet int32 // of 5 pods
	}{
		"default":                    {nil, 1, 1, 1},
		"a number":                   {new(intstr.FromInt32(2)), 2, 2, 2},
		"more than all":              {new(intstr.FromInt32(9)), 5, 5, 5},
		"none":                       {new(intstr.FromInt32(0)), 0, 0, 0},
		"a percentage":               {new(intstr.FromString("25%")), 1, 1, 2},
		"a percentage of less":       {new(intstr.FromString("10%")), 1, 1, 1},
		"a percentage of none":       {new(intstr.FromString("0%")), 0, 0, 0},
		"all":                        {new(intstr.FromString("100%")), 5, 5, 5},
		"what no API server accepts": {new(intstr.FromString("some")), 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			pod := inPlace()
			d := ingesttest.Deployment("web", pod)
			d.Spec.Replicas, d.Spec.Strategy.RollingUpdate = new(int32(5)), &appsv1.RollingUpdateDeployment{MaxUnavailable: tc.value}
			s := ingesttest.StatefulSet("web", pod)
			s.Spec.Replicas, s.Spec.UpdateStrategy.RollingUpdate = new(int32(5)), &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: tc.value}
			ds := ingesttest.DaemonSet("web", pod)
			ds.Status.DesiredNumberScheduled, ds.Spec.UpdateStrategy.RollingUpdate = 5, &appsv1.RollingUpdateDaemonSet{MaxUnavailable: tc.value}
			for o, want := range map[kind.Object]int32{d: tc.deployment, s: tc.statefulSet, ds: tc.daemonSet} {
				read, err := kind.Table(nil).OfObject(o).Read(o)
				if err != nil {
					t.Fatal(err)
				}
				why := ""
				if want == 0 {
					why = notAvailable
				}
				if read.MaxUnavailable != want || read.NotInPlace != why {
					t.Errorf("%T: %d, %q, want %d, %q", o, read.MaxUnavailable, read.NotInPlace, want, why)
				}
			}
		})
	}
}

func TestRead_OnDeleteRestartsPodsOneByOne(t *testing.T) {
	s := ingesttest.StatefulSet("web", inPlace())
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	ds := ingesttest.DaemonSet("web", inPlace())
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.OnDeleteDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(0))},
	}
	for _, o := range []kind.Object{s, ds} {
		if read, err := kind.Table(nil).OfObject(o).Read(o); err != nil || read.MaxUnavailable != 1 || read.NotInPlace != "" {
			t.Errorf("%T: %d, %q (%v), want 1 and in place", o, read.MaxUnavailable, read.NotInPlace, err)
		}
	}
}

func TestRead_DeadlineOfADeployment(t *testing.T) {
	d := ingesttest.Deployment("web", inPlace())
	d.Spec.ProgressDeadlineSeconds = new(int32(90))
	if read, err := kind.Table(nil).OfObject(d).Read(d); err != nil || read.Deadline != 90*time.Second {
		t.Errorf("deadline = %v (%v), want 1m30s", read.Deadline, err)
	}
}

// inPlace returns a pod with a restarter.
func inPlace() corev1.PodSpec {
	return corev1.PodSpec{
		Containers: []corev1.Container{{Name: "app"}},
		InitContainers: []corev1.Container{{
			Name: "restarter", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
			RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}},
			VolumeMounts:       []corev1.VolumeMount{{Name: "restart", MountPath: "/etc/configdep"}},
		}},
		Volumes: []corev1.Volume{{Name: "restart", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "restart", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['configdep.io/restart']"}}},
		}}}},
	}
}

func TestRead_WhetherThereIsARestarter(t *testing.T) {
	first := func(p *corev1.PodSpec) *corev1.Container { return &p.InitContainers[0] }
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		want   string // "": there is none
	}{
		"a sidecar": {func(*corev1.PodSpec) {}, "restarter"},
		"a regular container": {func(p *corev1.PodSpec) {
			c := *first(p)
			c.RestartPolicy = nil
			p.InitContainers, p.Containers = nil, append(p.Containers, c)
		}, "restarter"},
		"a projected volume": {func(p *corev1.PodSpec) {
			items := p.Volumes[0].DownwardAPI.Items
			p.Volumes[0].VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{}, {DownwardAPI: &corev1.DownwardAPIProjection{Items: items}},
			}}}
		}, "restarter"},
		"an init container that ends": {func(p *corev1.PodSpec) { first(p).RestartPolicy = nil }, ""},
		"one that restarts never":     {func(p *corev1.PodSpec) { first(p).RestartPolicy = new(corev1.ContainerRestartPolicyNever) }, ""},
		"no rule":                     {func(p *corev1.PodSpec) { first(p).RestartPolicyRules = nil }, ""},
		"a rule for itself": {func(p *corev1.PodSpec) {
			first(p).RestartPolicyRules[0].Action = corev1.ContainerRestartRuleActionRestart
		}, ""},
		"no mount":                 {func(p *corev1.PodSpec) { first(p).VolumeMounts = nil }, ""},
		"another mount":            {func(p *corev1.PodSpec) { first(p).VolumeMounts[0].Name = "other" }, ""},
		"a file of the volume":     {func(p *corev1.PodSpec) { first(p).VolumeMounts[0].SubPath = "restart" }, ""},
		"a file, by an expression": {func(p *corev1.PodSpec) { first(p).VolumeMounts[0].SubPathExpr = "$(FILE)" }, ""},
		"the volume, and a file of it": {func(p *corev1.PodSpec) {
			first(p).VolumeMounts = append([]corev1.VolumeMount{{Name: "restart", MountPath: "/file", SubPath: "restart"}}, first(p).VolumeMounts...)
		}, "restarter"},
		"another annotation": {func(p *corev1.PodSpec) {
			p.Volumes[0].DownwardAPI.Items[0].FieldRef.FieldPath = "metadata.annotations['x']"
		}, ""},
		"a resource": {func(p *corev1.PodSpec) { p.Volumes[0].DownwardAPI.Items[0].FieldRef = nil }, ""},
		"another volume": {func(p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}, ""},
		"an empty pod": {func(p *corev1.PodSpec) { *p = corev1.PodSpec{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := inPlace()
			tc.change(&pod)
			if got := kind.RestarterOf(&pod); got != tc.want {
				t.Errorf("restarter = %q, want %q", got, tc.want)
			}
			d := ingesttest.Deployment("web", pod)
			read, err := kind.Table(nil).OfObject(d).Read(d)
			if err != nil {
				t.Fatal(err)
			}
			if got := read.NotInPlace == ""; got != (tc.want != "") {
				t.Errorf("not in place: %q", read.NotInPlace)
			}
		})
	}
}
