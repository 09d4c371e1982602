// Command gencert writes a serving certificate for a list of DNS names, and the CA
// that signed it, into a folder: ca.crt, tls.crt and tls.key.
//
// The CA's key is never written: the CA signs this one certificate and can sign nothing
// else, so that whoever trusts ca.crt trusts nothing but this server. A renewed
// certificate therefore comes with a CA of its own. It uses the standard library alone.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	caYears   = 10
	leafYears = 1
	// clockSkew is how far a peer's clock may be behind ours.
	clockSkew = 5 * time.Minute
)

func main() {
	dns := flag.String("dns", "", "comma-separated DNS names that the certificate is for; the first is its common name")
	out := flag.String("out", "", "folder to write ca.crt, tls.crt and tls.key into; made if it does not exist, files in it are not overwritten")
	flag.Parse()

	if err := run(*dns, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "gencert:", err)
		os.Exit(1)
	}
}

func run(dns, out string, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if out == "" {
		return errors.New("-out is required")
	}
	names, err := parseNames(dns)
	if err != nil {
		return err
	}
	files, err := generate(names, time.Now())
	if err != nil {
		return err
	}
	return files.write(out)
}

func parseNames(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, errors.New("-dns is required")
	}
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if names[i] == "" {
			return nil, fmt.Errorf("-dns %q has an empty name", list)
		}
		if len(names[i]) > 253 || strings.ContainsAny(names[i], " /:@") {
			return nil, fmt.Errorf("-dns: %q is not a DNS name", names[i])
		}
	}
	return names, nil
}

// pemFiles are the contents of the files, PEM-encoded.
type pemFiles struct {
	caCert, cert, key []byte
}

// generate makes a CA and a serving certificate for names, both valid from now.
func generate(names []string, now time.Time) (pemFiles, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pemFiles{}, fmt.Errorf("making the CA's key: %w", err)
	}
	ca := &x509.Certificate{
		// The date tells one CA from the next one in a bundle that holds both.
		Subject:               pkix.Name{CommonName: "configdep serving CA " + now.UTC().Format(time.DateOnly)},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.AddDate(caYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return pemFiles{}, fmt.Errorf("signing the CA: %w", err)
	}
	// Parsed again for the key id that CreateCertificate has added.
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return pemFiles{}, fmt.Errorf("parsing the CA: %w", err)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pemFiles{}, fmt.Errorf("making the serving key: %w", err)
	}
	leaf := &x509.Certificate{
		DNSNames:              names,
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.AddDate(leafYears, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	// Clients check DNSNames; a common name is for people, and has room for 64 bytes.
	if len(names[0]) <= 64 {
		leaf.Subject.CommonName = names[0]
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return pemFiles{}, fmt.Errorf("signing the serving certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pemFiles{}, fmt.Errorf("encoding the serving key: %w", err)
	}
	return pemFiles{
		caCert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		cert:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafDER}),
		key:    pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// write puts the files into dir. It overwrites none: a key that is lost cannot be had again.
func (f pemFiles) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, file := range []struct {
		name    string
		content []byte
		mode    os.FileMode
	}{
		{"ca.crt", f.caCert, 0o644},
		{"tls.crt", f.cert, 0o644},
		{"tls.key", f.key, 0o600},
	} {
		if err := writeNew(filepath.Join(dir, file.name), file.content, file.mode); err != nil {
			return err
		}
	}
	return nil
}

func writeNew(path string, content []byte, mode os.FileMode) error {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return errors.Join(err, w.Close())
}
