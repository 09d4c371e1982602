package apiserver

import (
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
