package dependency

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// secretsStoreDriver is the CSI driver whose volumes name a SecretProviderClass.
const secretsStoreDriver = "secrets-store.csi.k8s.io"

// volume records what a volume consumes, by each of its mounts.
func (c *collector) volume(v *corev1.Volume, containers []corev1.Container) {
	// The kubelet makes no volume that nothing mounts, so pods start without its sources.
	unused := !mountedByAny(v.Name, containers)
	switch {
	case v.ConfigMap != nil:
		f := files{ConfigMap, v.ConfigMap.Name, v.ConfigMap.Items, unused || isTrue(v.ConfigMap.Optional)}
		c.mounted(Volume, v.Name, f, containers)
	case v.Secret != nil:
		f := files{Secret, v.Secret.SecretName, v.Secret.Items, unused || isTrue(v.Secret.Optional)}
		c.mounted(Volume, v.Name, f, containers)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if s.ConfigMap != nil {
				f := files{ConfigMap, s.ConfigMap.Name, s.ConfigMap.Items, unused || isTrue(s.ConfigMap.Optional)}
				c.mounted(Projected, v.Name, f, containers)
			}
			if s.Secret != nil {
				f := files{Secret, s.Secret.Name, s.Secret.Items, unused || isTrue(s.Secret.Optional)}
				c.mounted(Projected, v.Name, f, containers)
			}
		}
	case v.CSI != nil:
		use := Use{Type: CSI, Volume: v.Name, Optional: unused}
		if v.CSI.NodePublishSecretRef != nil {
			c.add(Secret, v.CSI.NodePublishSecretRef.Name, use)
		}
		if v.CSI.Driver == secretsStoreDriver {
			c.add(SecretProviderClass, v.CSI.VolumeAttributes["secretProviderClass"], use)
		}
	default:
		name, required := volumeSecret(v)
		c.add(Secret, name, Use{Type: VolumeSecret, Volume: v.Name, Optional: unused || !required})
	}
}

func mountedByAny(volume string, containers []corev1.Container) bool {
	for i := range containers {
		if slices.ContainsFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) {
			return true
		}
	}
	return false
}

// volumeSecret returns the name of the Secret with the credential of a volume, or "", and
// whether the volume cannot be made without it.
func volumeSecret(v *corev1.Volume) (name string, required bool) {
	var ref *corev1.LocalObjectReference
	required = true
	switch {
	case v.AzureFile != nil:
		return v.AzureFile.SecretName, true
	case v.CephFS != nil:
		ref = v.CephFS.SecretRef
	case v.Cinder != nil:
		ref = v.Cinder.SecretRef
	case v.FlexVolume != nil:
		ref = v.FlexVolume.SecretRef
	case v.ISCSI != nil:
		ref = v.ISCSI.SecretRef
		required = v.ISCSI.DiscoveryCHAPAuth || v.ISCSI.SessionCHAPAuth // else it is not read
	case v.RBD != nil:
		ref = v.RBD.SecretRef
	case v.ScaleIO != nil:
		ref = v.ScaleIO.SecretRef
	case v.StorageOS != nil:
		ref = v.StorageOS.SecretRef
	}
	if ref == nil {
		return "", false
	}
	return ref.Name, required
}

// files is a source as a volume shows it: its keys as files, or only some, under the
// paths of items.
type files struct {
	kind     SourceKind
	name     string
	items    []corev1.KeyToPath
	optional bool
}

// mounted records a use for each mount that shows something of the files. When none does
// there is one use without a container: the kubelet makes the volume all the same, unless
// nothing mounts it.
func (c *collector) mounted(typ UseType, volume string, f files, containers []corev1.Container) {
	var required []string
	for _, item := range f.items {
		required = append(required, item.Key)
	}
	required = sortedSet(required)
	use := Use{Type: typ, Volume: volume, Optional: f.optional}
	shown := false
	for i := range containers {
		for j := range containers[i].VolumeMounts {
			m := &containers[i].VolumeMounts[j]
			if m.Name != volume {
				continue
			}
			keys, all := f.visible(m)
			if !all && len(keys) == 0 {
				continue
			}
			shown = true
			use := use
			use.Container, use.MountPath, use.Keys = containers[i].Name, m.MountPath, keys
			use.SubPath = m.SubPath != "" || m.SubPathExpr != ""
			c.add(f.kind, f.name, use, required...)
		}
	}
	if !shown {
		use.Keys = required
		c.add(f.kind, f.name, use, required...)
	}
}

// visible returns the keys that a mount shows, or all. A subPath narrows them to the
// file or folder that it names; what a subPathExpr names is known only in the container.
func (f *files) visible(m *corev1.VolumeMount) (keys []string, all bool) {
	within := "."
	if m.SubPath != "" {
		// The files are in the folder ..data; what stands beside it are links into it.
		within = path.Clean(strings.TrimPrefix(path.Clean(m.SubPath)+"/", "..data/"))
	}
	if len(f.items) == 0 {
		if within == "." {
			return nil, true
		}
		return []string{within}, false // without items a file is named like its key
	}
	for _, item := range f.items {
		if p := path.Clean(item.Path); within == "." || p == within || strings.HasPrefix(p, within+"/") {
			keys = append(keys, item.Key)
		}
	}
	return sortedSet(keys), false
}
