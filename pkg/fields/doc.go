// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package fields computes the fields of custom resources that get their values from ConfigMaps and Secrets: which ones an
// annotation asks for, what their values are, and what is applied. It is pure, and no error of it contains a value.
package fields
