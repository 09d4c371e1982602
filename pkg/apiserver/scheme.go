// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"errors"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep"
	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

func init() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
	// The types that the generic API server itself serves, without a group.
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{},
		&metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
}

// newAPIGroup returns the API group without its resources. It wraps the serializer of NewDefaultAPIGroupInfo instead of
// codecs, because only that serializer streams lists in JSON: 50,000 objects are more than 100 MB.
func newAPIGroup() genericapiserver.APIGroupInfo {
	group := genericapiserver.NewDefaultAPIGroupInfo(configdep.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.NegotiatedSerializer = textSerializer{group.NegotiatedSerializer}
	return group
}

// textSerializer does not offer protobuf, which the types of our group do not support. If it
// did, clients that prefer protobuf but also accept JSON, such as clients for built-in types,
// would get 406 instead of JSON.
type textSerializer struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s textSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
	for i := range infos {
		switch info := &infos[i]; info.MediaType {
		case runtime.ContentTypeJSON:
			info.StrictSerializer = strict{jsonOrYAML{info.StrictSerializer}}
		case runtime.ContentTypeYAML:
			info.StrictSerializer = strict{withoutAliases{info.StrictSerializer}}
		}
		infos[i].Serializer = infos[i].StrictSerializer
	}
	return infos
}

// strict refuses unknown and duplicate fields, whatever the request says about validating fields: a Reload whose precondition
// is misspelled would restart what it should not.
type strict struct{ runtime.Serializer }

var errEmpty = errors.New("the body is empty: {} is enough")

// Decode implements runtime.Decoder.
func (s strict) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, errEmpty
	}
	object, kind, err := s.Serializer.Decode(data, defaults, into)
	if runtime.IsStrictDecodingError(err) {
		return nil, kind, errors.New(err.Error()) // the generic API server makes a warning of the other type
	}
	return object, kind, err
}

// jsonOrYAML also decodes YAML, because kubectl create --raw sends any file with the content
// type of JSON.
type jsonOrYAML struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (s jsonOrYAML) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if !yaml.IsJSONBuffer(data) {
		if err := refuseAliases(data); err != nil {
			return nil, nil, err
		}
		object, err := sigsyaml.YAMLToJSONStrict(data)
		if err != nil {
			return nil, nil, err
		}
		if yaml.IsJSONBuffer(object) {
			data = object
		}
	}
	return s.Serializer.Decode(data, defaults, into)
}

// withoutAliases decodes YAML without aliases.
type withoutAliases struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (s withoutAliases) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if err := refuseAliases(data); err != nil {
		return nil, nil, err
	}
	return s.Serializer.Decode(data, defaults, into)
}

var errAlias = errors.New("YAML with aliases (*name) is not accepted")

// refuseAliases returns an error for YAML with aliases. What converts YAML to JSON writes the value in the place of each
// of them, and aliases of lists of aliases make gigabytes of a few kilobytes.
func refuseAliases(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 {
		return nil // no alias without both, in any encoding
	}
	var document yamlv3.Node // into which aliases are decoded as they are
	if err := yamlv3.Unmarshal(data, &document); err != nil {
		return err
	}
	if hasAlias(&document) {
		return errAlias
	}
	return nil
}

func hasAlias(n *yamlv3.Node) bool {
	return n.Kind == yamlv3.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}
