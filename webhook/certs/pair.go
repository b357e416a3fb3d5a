package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Keys of the Secret. The names of the first two are those of a TLS Secret.
const (
	keyCert = "tls.crt"
	keyKey  = "tls.key"
	keyCA   = "ca.crt"
)

// The serving certificate lives as long as its authority, since both are renewed
// together: the authority's key signs once and is thrown away.
const (
	lifetime    = 365 * 24 * time.Hour
	renewBefore = lifetime / 3
	clockSkew   = time.Hour
)

// Pair is a serving certificate with its key, and the authority that signed it, as PEM.
type Pair struct {
	Cert, Key, CA []byte
}

// newPair makes an authority and a serving certificate for the DNS names, valid
// from an hour before now. The authority's key is not kept.
func newPair(now time.Time, names []string) (Pair, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	ca := template(now, "pdpool-webhook-ca")
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	caDER, err := sign(ca, ca, caKey, caKey)
	if err != nil {
		return Pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	leaf := template(now, names[0])
	leaf.DNSNames = names
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leafDER, err := sign(leaf, ca, key, caKey)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a key: %w", err)
	}
	return Pair{
		Cert: encode("CERTIFICATE", leafDER),
		Key:  encode("PRIVATE KEY", keyDER),
		CA:   encode("CERTIFICATE", caDER),
	}, nil
}

func template(now time.Time, name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		serial = big.NewInt(now.UnixNano())
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(lifetime),
	}
}

func sign(cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", cert.Subject.CommonName, err)
	}
	return der, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// firstCertificate returns the first certificate of a bundle: the newest
// authority. It stays trusted beside its successor, as other replicas serve by it
// until they look at the Secret again.
func firstCertificate(bundle []byte) []byte {
	block, _ := pem.Decode(bundle)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil
	}
	return pem.EncodeToMemory(block)
}

// errRenew says why a pair must be replaced.
var errRenew = errors.New("certificate must be renewed")

// check parses the pair and returns it ready to serve, or errRenew with the
// reason when it does not verify, lacks a name, or ends within a third of its life.
func (p Pair) check(now time.Time, names []string) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRenew, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.CA) {
		return nil, fmt.Errorf("%w: %s holds no certificate", errRenew, keyCA)
	}
	leaf := cert.Leaf
	for _, name := range names {
		if !slices.Contains(leaf.DNSNames, name) {
			return nil, fmt.Errorf("%w: it is not for %s", errRenew, name)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return nil, fmt.Errorf("%w: %w", errRenew, err)
	}
	if leaf.NotAfter.Sub(now) < renewBefore {
		return nil, fmt.Errorf("%w: it ends at %s", errRenew, leaf.NotAfter.Format(time.RFC3339))
	}
	return &cert, nil
}
