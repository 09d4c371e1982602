// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

// storeSpec is the schema of the specification of a HarborStore.
var storeSpec = content{
	"type": "object", "x-kubernetes-preserve-unknown-fields": true,
	"properties": content{
		"restartedAt": content{"type": "string"},
		"database":    content{"type": "object", "properties": content{"passwordRef": content{"type": "string"}, "port": content{"type": "integer"}}},
		"storage": content{"type": "object", "properties": content{"s3": content{"type": "object", "properties": content{
			"accessKey": content{"type": "string", "maxLength": 64}, "insecure": content{"type": "boolean"},
		}}}},
		"env": content{
			"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"name"},
			"items": content{"type": "object", "required": []any{"name"}, "properties": content{"name": content{"type": "string"}, "value": content{"type": "string"}}},
		},
		"list": content{"type": "array", "items": content{"type": "object", "properties": content{"name": content{"type": "string"}, "value": content{"type": "string"}}}},
	},
}
