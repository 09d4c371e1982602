package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/dependency"
)

// wireLister lists and watches ConfigMaps or Secrets and digests their values where they
// lie in the buffer that came from the network: no object with content is ever made. It
// is also what makes a start cheap, as values are most of what is read then. The client
// decides how to connect; what is different is only how an answer is decoded.
func wireLister(base *rest.RESTClient, resource string, decoder *sourceDecoder) (cache.ListerWatcher, error) {
	url := base.Get().URL() // …/api/v1
	root := *url
	root.Path = ""
	client, err := rest.NewRESTClient(&root, url.Path, rest.ClientContentConfig{
		AcceptContentTypes: runtime.ContentTypeProtobuf,
		ContentType:        runtime.ContentTypeProtobuf,
		GroupVersion:       schema.GroupVersion{Version: "v1"},
		Negotiator:         runtime.NewClientNegotiator(wireSerializer{decoder}, schema.GroupVersion{Version: "v1"}),
	}, nil, base.Client)
	if err != nil {
		return nil, err
	}
	request := func(options *metav1.ListOptions) *rest.Request {
		return client.Get().Resource(resource).VersionedParams(options, scheme.ParameterCodec)
	}
	return paged{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			inPages(&options)
			return request(&options).Do(withoutBodies(ctx)).Get()
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return request(&options).Watch(withoutBodies(ctx))
		},
	}}, nil
}

// wireSerializer negotiates protobuf and decodes it by the decoder.
type wireSerializer struct{ *sourceDecoder }

func (w wireSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := []runtime.SerializerInfo{{
		MediaType:     runtime.ContentTypeProtobuf,
		MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
		Serializer: decodeOnly{w.sourceDecoder},
		StreamSerializer: &runtime.StreamSerializerInfo{
			Serializer: decodeOnly{eventDecoder{}},
			Framer:     protobuf.LengthDelimitedFramer,
		},
	}}
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			info.Serializer, info.StrictSerializer, info.StreamSerializer = statusOnly{info.Serializer}, nil, nil
			infos = append(infos, info)
		}
	}
	return infos
}

// statusOnly decodes the errors of whatever stands between us and the API server. Sources
// must not come that way: they would pass as they are.
type statusOnly struct{ runtime.Serializer }

func (s statusOnly) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, gvk, err := s.Serializer.Decode(data, defaults, into)
	if err != nil {
		return nil, gvk, err
	}
	if _, ok := o.(*metav1.Status); !ok {
		return nil, gvk, fmt.Errorf("a %T came in another format than was asked for", o)
	}
	return o, gvk, nil
}

func (wireSerializer) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder {
	return e
}

func (wireSerializer) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// decodeOnly is a serializer of which only the decoder is used.
type decodeOnly struct{ runtime.Decoder }

func (decodeOnly) Encode(runtime.Object, io.Writer) error {
	return errors.New("sources are never written")
}
func (decodeOnly) Identifier() runtime.Identifier { return "configdep-sources" }

// eventDecoder decodes a watch event without a copy of the object in it. The decoder of
// the object is done with it before the buffer is used again.
type eventDecoder struct{}

func (eventDecoder) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("a watch event cannot be decoded into a %T", into)
	}
	err := eachField(data, func(field protowire.Number, value []byte) error {
		switch field { // of meta/v1 WatchEvent
		case 1:
			event.Type = string(value)
		case 2:
			return eachField(value, func(field protowire.Number, value []byte) error {
				if field == 1 { // of RawExtension
					event.Object.Raw = value
				}
				return nil
			})
		}
		return nil
	})
	return event, nil, err
}

// sourceDecoder decodes ConfigMaps or Secrets, and lists of them, into objects.
type sourceDecoder struct {
	kind     dependency.SourceKind
	digester *dependency.Digester
}

// magic stands before every object that the API server encodes in protobuf.
const magic = "k8s\x00"

// Decode decodes an envelope: the kind, and the object itself.
func (d *sourceDecoder) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if len(data) < len(magic) || string(data[:len(magic)]) != magic {
		return nil, nil, errors.New("what came is not an object in protobuf")
	}
	var kind string
	var raw []byte
	err := eachField(data[len(magic):], func(field protowire.Number, value []byte) error {
		switch field { // of runtime.Unknown
		case 1:
			return eachField(value, func(field protowire.Number, value []byte) error {
				if field == 2 { // of TypeMeta
					kind = string(value)
				}
				return nil
			})
		case 2:
			raw = value
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	gvk := &schema.GroupVersionKind{Version: "v1", Kind: kind}
	switch kind {
	case string(d.kind):
		o, err := d.object(raw)
		return o, gvk, err
	case string(d.kind) + "List":
		list, err := d.list(raw)
		return list, gvk, err
	case "Status":
		status := &metav1.Status{}
		return status, gvk, status.Unmarshal(raw)
	default:
		return nil, nil, fmt.Errorf("a %s came in the place of a %s", kind, d.kind)
	}
}

func (d *sourceDecoder) list(raw []byte) (*metav1.List, error) {
	list := &metav1.List{}
	err := eachField(raw, func(field protowire.Number, value []byte) error {
		switch field { // of ConfigMapList and SecretList
		case 1:
			return list.ListMeta.Unmarshal(value)
		case 2:
			o, err := d.object(value)
			list.Items = append(list.Items, runtime.RawExtension{Object: o})
			return err
		}
		return nil
	})
	return list, err
}

// The fields of core/v1 ConfigMap and Secret. The second of a Secret is its data.
const (
	metadataField   = 1
	dataField       = 2
	binaryDataField = 3 // of a ConfigMap; the type of a Secret
)

func (d *sourceDecoder) object(raw []byte) (*object, error) {
	var m metav1.ObjectMeta
	var keys []dependency.KeyDigest
	err := eachField(raw, func(field protowire.Number, value []byte) error {
		binary := field == binaryDataField && d.kind == dependency.ConfigMap
		switch {
		case field == metadataField:
			return m.Unmarshal(value)
		case field == dataField || binary:
			key, err := d.key(value)
			key.Binary = binary
			keys = append(keys, key)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	o := reduced(&m)
	if m.Name != "" { // a bookmark has no name
		o.source = dependency.NewSource(d.kind, &m, keys)
	}
	return o, nil
}

// key digests an entry of a map, and overwrites its value.
func (d *sourceDecoder) key(entry []byte) (k dependency.KeyDigest, err error) {
	var content []byte
	err = eachField(entry, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			k.Key = string(value)
		case 2:
			content = value
		}
		return nil
	})
	k.Digest = d.digester.Content(content)
	return k, err
}

// eachField calls f for each field of a message that has a length; others are passed over.
func eachField(message []byte, f func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		field, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, typ, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(field, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
