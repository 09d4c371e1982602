// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	serveroptions "github.com/configdep/configdep/pkg/apiserver/options"
)

// serverFlags returns the flags of the server, and its options.
func serverFlags() (*pflag.FlagSet, *serveroptions.Options) {
	o := serveroptions.NewOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		fs.AddFlagSet(set)
	}
	return fs, o
}

// startWith reports what is wrong with arguments of the server.
func startWith(args []string) error {
	fs, o := serverFlags()
	if err := fs.Parse(append(args, "--kubeconfig=x")); err != nil {
		return err
	}
	return o.Complete().Validate()
}

// The comment tells users to set only flags that the server has.
func TestConvert_NamesFlagsThatExist(t *testing.T) {
	fs, _ := serverFlags()
	named := 0
	for name, tt := range conversions {
		output, err := convert(parsedValues(t, tt.in), testOptions)
		if err != nil {
			t.Fatal(err)
		}
		_, comment := split(t, output)
		for _, flag := range regexp.MustCompile(`--[A-Za-z-]+`).FindAllString(comment, -1) {
			if flag == "--namespace" { // is one of helm
				continue
			}
			named++
			if fs.Lookup(strings.TrimPrefix(flag, "--")) == nil {
				t.Errorf("%s: the comment names %s, which the server does not have", name, flag)
			}
		}
	}
	if named < 3 {
		t.Errorf("found only %d flags", named)
	}
}
