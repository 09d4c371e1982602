// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

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
func (c *collector) volume(v *corev1.Volume) {
	// The kubelet makes no volume that nothing mounts, so pods start without its sources.
	unused := len(c.mounts[v.Name]) == 0
	switch {
	case v.ConfigMap != nil:
		f := files{ConfigMap, v.ConfigMap.Name, v.ConfigMap.Items, unused || isTrue(v.ConfigMap.Optional)}
		c.mounted(Volume, v.Name, f)
	case v.Secret != nil:
		f := files{Secret, v.Secret.SecretName, v.Secret.Items, unused || isTrue(v.Secret.Optional)}
		c.mounted(Volume, v.Name, f)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if s.ConfigMap != nil {
				f := files{ConfigMap, s.ConfigMap.Name, s.ConfigMap.Items, unused || isTrue(s.ConfigMap.Optional)}
				c.mounted(Projected, v.Name, f)
			}
			if s.Secret != nil {
				f := files{Secret, s.Secret.Name, s.Secret.Items, unused || isTrue(s.Secret.Optional)}
				c.mounted(Projected, v.Name, f)
			}
		}
	case v.CSI != nil:
		use := Use{Type: CSI, Volume: v.Name, Optional: unused}
		if v.CSI.NodePublishSecretRef != nil {
			c.add(Secret, v.CSI.NodePublishSecretRef.Name, use)
		}
		if v.CSI.Driver == secretsStoreDriver {
			c.class(v.CSI.VolumeAttributes["secretProviderClass"], use)
		}
	default:
		name, required := volumeSecret(v)
		c.add(Secret, name, Use{Type: VolumeSecret, Volume: v.Name, Optional: unused || !required})
	}
}

// class records a use of a SecretProviderClass for each mount of its volume. Its objects are not named like the files, so each
// mount may show any of them.
func (c *collector) class(name string, use Use) {
	mounts := c.mounts[use.Volume]
	if len(mounts) == 0 {
		c.add(SecretProviderClass, name, use)
		return
	}
	if c.looks += len(mounts); c.looks > maxLooks {
		c.truncated = true
	}
	for i := range mounts {
		if c.truncated {
			return
		}
		use.Container, use.MountPath, use.SubPath = mounts[i].container, mounts[i].path, mounts[i].subPath
		c.add(SecretProviderClass, name, use)
	}
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

// mount is where a container mounts a volume.
type mount struct {
	container, path string
	subPath         bool
	// within is the file or the folder of the volume that it shows; ".": all of it.
	within string
}

// newMount reads a mount. A subPath narrows it to the file or folder that it names; what a subPathExpr names is
// known only in the container.
func newMount(c *corev1.Container, m *corev1.VolumeMount) mount {
	out := mount{container: c.Name, path: m.MountPath, subPath: m.SubPath != "" || m.SubPathExpr != "", within: "."}
	if m.SubPath != "" {
		// The files are in the folder ..data; what stands beside it are links into it.
		out.within = path.Clean(strings.TrimPrefix(path.Clean(m.SubPath)+"/", "..data/"))
	}
	return out
}

// mounted records a use for each mount that shows something of the files. When none does
// there is one use without a container: the kubelet makes the volume all the same, unless
// nothing mounts it.
func (c *collector) mounted(typ UseType, volume string, f files) {
	if c.looks += len(c.mounts[volume]); c.looks > maxLooks {
		c.truncated = true
	}
	if c.truncated {
		return
	}
	var required []string
	for _, item := range f.items {
		required = append(required, item.Key)
	}
	required = sortedSet(required)
	use := Use{Type: typ, Volume: volume, Optional: f.optional}
	shown := false
	shows := f.shown()
	for i := range c.mounts[volume] {
		m := &c.mounts[volume][i]
		keys, all := shows.by(m.within)
		if !all && len(keys) == 0 {
			continue
		}
		// What is required is the same for each mount.
		var requires []string
		if !shown {
			requires = required
		}
		shown = true
		use := use
		use.Container, use.MountPath, use.Keys, use.SubPath = m.container, m.path, keys, m.subPath
		c.add(f.kind, f.name, use, requires...)
	}
	if !shown {
		use.Keys = required
		c.add(f.kind, f.name, use, required...)
	}
}

// shown finds out what mounts show of a volume's files.
type shown struct {
	items  []corev1.KeyToPath // in the order of their paths, which are clean; nil: a file is named like its key
	within map[string][]string
}

func (f *files) shown() *shown {
	s := &shown{within: map[string][]string{}}
	for _, item := range f.items {
		s.items = append(s.items, corev1.KeyToPath{Key: item.Key, Path: path.Clean(item.Path)})
	}
	slices.SortFunc(s.items, comparePaths)
	return s
}

func comparePaths(a, b corev1.KeyToPath) int { return strings.Compare(a.Path, b.Path) }

// by returns the keys that a mount shows of what is within a folder or a file, or all. Mounts that show the
// same share what is returned.
func (s *shown) by(within string) (keys []string, all bool) {
	if len(s.items) == 0 && within == "." {
		return nil, true
	}
	keys, known := s.within[within]
	switch {
	case known:
		return keys, false
	case len(s.items) == 0:
		keys = []string{within}
	case within == ".":
		keys = s.keysFrom("", func(string) bool { return true })
	default:
		keys = s.keysFrom(within, func(p string) bool { return p == within })
		keys = append(keys, s.keysFrom(within+"/", func(p string) bool { return strings.HasPrefix(p, within+"/") })...)
	}
	keys = sortedSet(keys)
	s.within[within] = keys
	return keys, false
}

// keysFrom returns the keys of the items from a path on for which a condition holds.
func (s *shown) keysFrom(first string, condition func(path string) bool) (keys []string) {
	i, _ := slices.BinarySearchFunc(s.items, corev1.KeyToPath{Path: first}, comparePaths)
	for ; i < len(s.items) && condition(s.items[i].Path); i++ {
		keys = append(keys, s.items[i].Key)
	}
	return keys
}
