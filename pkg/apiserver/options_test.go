package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What is wrong is said in terms of the flag, with what is allowed.
func TestWatchHistorySize(t *testing.T) {
	const wrong = "--watch-history-size must be a number of bytes from 8Mi to 1Ti"
	for text, want := range map[string]string{
		"8Mi": "", "1Ti": "", "33554432": "", "1e9": "",
		"8388607": wrong, "0": wrong, "-32Mi": wrong, "2Ti": wrong, "1e30": wrong,
		"much": "invalid argument", "": "invalid argument",
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		err := fs.Parse([]string{"--kubeconfig=x", "--watch-history-size=" + text})
		if err == nil {
			err = o.Validate()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Namespaces are read one by one, so that the server does not start with so many that it would be a burden
// to the API server.
func TestNamespaces(t *testing.T) {
	many := make([]string, maxNamespaces+1)
	for i := range many {
		many[i] = fmt.Sprint("tenant-", i)
	}
	for text, want := range map[string]string{
		"shop":                                  "",
		"shop,tools":                            "",
		"shop,Shop":                             `--namespaces: "Shop" is not the name of a namespace`,
		"shop,tools,shop":                       `--namespaces names "shop" twice`,
		strings.Join(many[:maxNamespaces], ","): "",
		strings.Join(many[:maxNamespaces+1], ","): "--namespaces names 101 namespaces, but at most 100 can be read one by one",
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		err := fs.Parse([]string{"--kubeconfig=x", "--namespaces=" + text})
		if err == nil {
			err = o.Validate()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
