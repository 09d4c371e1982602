// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// A pod in protobuf has several kilobytes, of which the graph keeps some hundred bytes. Nearly all events of a cluster are of pods, so nothing is
// decoded that is not kept.

// decodePod decodes the parts of a core/v1 Pod that are read, with the field numbers of its definition.
func decodePod(raw []byte) (*podParts, error) {
	p := &podParts{}
	var statuses []byte
	err := eachField(raw, func(field protowire.Number, value []byte) error {
		switch field {
		case metadataField:
			return decodePodMeta(value, &p.ObjectMeta)
		case 2:
			return p.decodeSpec(value)
		case 3: // the containers must be known before their statuses
			statuses = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, p.decodeStatus(statuses)
}

// decodePodMeta decodes the metadata of a pod, of the annotations only those that are read.
func decodePodMeta(raw []byte, m *metav1.ObjectMeta) error {
	return eachValue(raw, func(field protowire.Number, value []byte, number uint64) (err error) {
		switch field { // of meta/v1 ObjectMeta
		case 1:
			m.Name = string(value)
		case 3:
			m.Namespace = string(value)
		case 5:
			m.UID = types.UID(value)
		case 6:
			m.ResourceVersion = string(value)
		case 8:
			m.CreationTimestamp.Time, err = timeOf(value)
		case 9:
			var at metav1.Time
			at.Time, err = timeOf(value)
			m.DeletionTimestamp = &at
		case 10:
			m.DeletionGracePeriodSeconds = new(int64(number))
		case 11:
			err = addEntry(&m.Labels, value, func(string) bool { return true })
		case annotationsField:
			err = addEntry(&m.Annotations, value, isReadOfPods)
		case 13:
			var r metav1.OwnerReference
			if r, err = ownerOf(value); err == nil {
				m.OwnerReferences = append(m.OwnerReferences, r)
			}
		}
		return err
	})
}

// isReadOfPods reports whether an annotation of pods is read.
func isReadOfPods(key string) bool {
	return key == record.ConfigHashAnnotation || key == record.RestartAnnotation || key == status.Annotation
}

// addEntry adds an entry to a map if its key is wanted.
func addEntry(to *map[string]string, entry []byte, wanted func(string) bool) error {
	key, value, err := entryOf(entry)
	if err != nil || !wanted(key) {
		return err
	}
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[key] = string(value)
	return nil
}

// ownerOf decodes a meta/v1 OwnerReference.
func ownerOf(raw []byte) (r metav1.OwnerReference, err error) {
	err = eachValue(raw, func(field protowire.Number, value []byte, number uint64) error {
		switch field {
		case 1:
			r.Kind = string(value)
		case 3:
			r.Name = string(value)
		case 4:
			r.UID = types.UID(value)
		case 5:
			r.APIVersion = string(value)
		case 6:
			r.Controller = new(number != 0)
		}
		return nil
	})
	return r, err
}

// decodeSpec decodes a core/v1 PodSpec. Init containers may come after the others.
func (p *podParts) decodeSpec(raw []byte) error {
	for _, want := range []struct {
		field protowire.Number
		init  bool
	}{{20, true}, {2, false}} {
		err := eachField(raw, func(field protowire.Number, value []byte) error {
			switch field {
			case 10:
				p.node = string(value)
			case want.field:
				return p.decodeContainer(value, want.init)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeContainer decodes a core/v1 Container.
func (p *podParts) decodeContainer(raw []byte, init bool) error {
	var name []byte
	role := dependency.RegularContainer
	if init {
		role = dependency.InitContainer
	}
	err := eachField(raw, func(field protowire.Number, value []byte) error {
		switch {
		case field == 1:
			name = value
		case field == 24 && init && string(value) == "Always":
			role = dependency.SidecarContainer
		case field == 25:
			p.restarts = true
		}
		return nil
	})
	p.add(string(name), role)
	return err
}

// decodeStatus decodes a core/v1 PodStatus.
func (p *podParts) decodeStatus(raw []byte) error {
	err := eachField(raw, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			p.phase = string(value)
		case 2:
			return p.decodeCondition(value)
		case 8, 10:
			return p.decodeContainerStatus(value)
		}
		return nil
	})
	p.wait()
	return err
}

// decodeCondition decodes a core/v1 PodCondition.
func (p *podParts) decodeCondition(raw []byte) error {
	var typ, status, since, reason []byte
	err := eachField(raw, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			typ = value
		case 2:
			status = value
		case 4:
			since = value
		case 5:
			reason = value
		}
		return nil
	})
	switch {
	case err != nil:
	case string(typ) == "Ready" && string(status) == "True":
		p.ready, err = timeOf(since)
	case string(typ) == "Ready" && len(since) > 0:
		var at time.Time
		at, err = timeOf(since)
		p.unready = at.Unix()
	case string(typ) == "PodScheduled" && string(status) == "False":
		p.unscheduled = string(reason)
	}
	return err
}

// decodeContainerStatus decodes a core/v1 ContainerStatus.
func (p *podParts) decodeContainerStatus(raw []byte) error {
	var s containerStatus
	err := eachValue(raw, func(field protowire.Number, value []byte, number uint64) error {
		switch field {
		case 1:
			s.name = string(value)
		case 2:
			return s.decodeState(value)
		case 3:
			s.before = len(value) > 0
		case 5:
			s.restarts = int32(number)
		}
		return nil
	})
	p.report(&s)
	return err
}

// decodeState decodes a core/v1 ContainerState. If there are several, the one that says most of a start counts.
func (s *containerStatus) decodeState(raw []byte) error {
	var waiting, running, terminated []byte
	err := eachField(raw, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			waiting = notNil(value)
		case 2:
			running = notNil(value)
		case 3:
			terminated = notNil(value)
		}
		return nil
	})
	if err != nil {
		return err
	}
	startedAt := func(of []byte, number protowire.Number) error {
		s.ran, s.ended = true, number == 5
		return eachField(of, func(field protowire.Number, value []byte) (err error) {
			if field == number {
				s.started, err = timeOf(value)
			}
			return err
		})
	}
	switch {
	case running != nil:
		return startedAt(running, 1)
	case terminated != nil:
		return startedAt(terminated, 5)
	}
	return eachField(waiting, func(field protowire.Number, value []byte) error {
		if field == 1 {
			s.waiting = string(value)
		}
		return nil
	})
}

// notNil returns a message that is there, though perhaps empty.
func notNil(message []byte) []byte {
	if message == nil {
		return []byte{}
	}
	return message
}

// timeOf decodes a meta/v1 Time in whole seconds, as its own decoder does; empty is the zero time.
func timeOf(raw []byte) (time.Time, error) {
	if len(raw) == 0 {
		return time.Time{}, nil
	}
	var seconds int64
	err := eachValue(raw, func(field protowire.Number, _ []byte, number uint64) error {
		if field == 1 {
			seconds = int64(number)
		}
		return nil
	})
	return time.Unix(seconds, 0).Local(), err
}

// eachValue calls f for each field of a message that is length-delimited or a varint; others are skipped.
func eachValue(message []byte, f func(field protowire.Number, value []byte, number uint64) error) error {
	for len(message) > 0 {
		field, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var value []byte
		var number uint64
		switch typ {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(field, typ, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if typ != protowire.BytesType && typ != protowire.VarintType {
			continue
		}
		if err := f(field, value, number); err != nil {
			return err
		}
	}
	return nil
}
