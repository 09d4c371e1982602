// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package destination reads to which destinations outside of the cluster events are sent: from a file, and from the
// environment variables that Stakater Reloader has for this. It sends nothing; package webhook does.
//
// Errors name the file, the destination and the field. They contain no value that is read here, other than parts of
// templates: a URL is a credential, and may be in the wrong field.
package destination
