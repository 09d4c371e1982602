// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin is the command kubectl configdep. Its commands show what the API says, in the words that users of kubectl know,
// and create Reloads. Each command is a file.
//
// What a command does needs no more than the rights of its user on ConfigDependencies. Where it reads other objects, such as the
// history of a Deployment, it does so with the user's own rights, and says what it could not read.
package plugin
