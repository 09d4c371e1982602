// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/binary"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// inProtobuf encodes an object as an API server does.
func inProtobuf(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	versions := schema.GroupVersions{corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion}
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), versions)
	raw, err := runtime.Encode(encoder, o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func inJSON(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	raw, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// frame encodes a watch event with an encoded object as an API server does.
func frame(t testing.TB, typ watch.EventType, object []byte) []byte {
	t.Helper()
	event := metav1.WatchEvent{Type: string(typ), Object: runtime.RawExtension{Raw: object}}
	raw, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

// inner returns the object in an envelope.
func inner(t testing.TB, o interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
