package apiserver

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"

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
	// What the generic API server serves of its own, without a group.
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{},
		&metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
}

// newAPIGroup returns our group without its resources. Lists are encoded item by item, as the generic API
// server does it: one of 50,000 objects would otherwise lie in memory as a whole, as more than 100 MB of JSON.
func newAPIGroup() genericapiserver.APIGroupInfo {
	group := genericapiserver.NewDefaultAPIGroupInfo(configdep.GroupName, scheme, metav1.ParameterCodec, codecs)
	group.NegotiatedSerializer = textSerializer{group.NegotiatedSerializer}
	return group
}

// textSerializer encodes the types of our group, which have no protobuf form. If protobuf
// were on offer, a client that prefers it and takes JSON as well, as those of built-in
// types do, would get 406 in place of JSON.
type textSerializer struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes is part of runtime.NegotiatedSerializer.
func (s textSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
	for i := range infos {
		if info := &infos[i]; info.MediaType == runtime.ContentTypeJSON {
			info.Serializer = jsonOrYAML{info.Serializer}
			info.StrictSerializer = jsonOrYAML{info.StrictSerializer}
		}
	}
	return infos
}

// jsonOrYAML decodes YAML too, because kubectl create --raw sends whatever file it is given
// as JSON.
type jsonOrYAML struct{ runtime.Serializer }

// Decode is part of runtime.Decoder.
func (s jsonOrYAML) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if !yaml.IsJSONBuffer(data) {
		if object, err := yaml.ToJSON(data); err == nil && yaml.IsJSONBuffer(object) {
			data = object
		}
	}
	return s.Serializer.Decode(data, defaults, into)
}
