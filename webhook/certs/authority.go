// Package certs serves the admission webhook's certificate without a volume, an
// init job or another operator: replicas of the manager agree on a certificate
// through a Secret, write its authority into the webhook configuration, and serve
// what they read. A replica is ready only when a call of its own verifies against
// the authority that the API server uses.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Intervals between looks at the Secret and the webhook configuration: short
// until the certificate serves, then rare. A look that finds all in order writes nothing.
const (
	retryInterval = 500 * time.Millisecond
	lookInterval  = 30 * time.Second
	dialTimeout   = 2 * time.Second
)

// Authority keeps the webhook's certificate. Reader must not be a cache: the
// Secret is read alone, by name.
type Authority struct {
	Reader        client.Reader
	Writer        client.Writer
	Secret        types.NamespacedName
	Configuration string   // name of the ValidatingWebhookConfiguration
	Names         []string // DNS names of the webhook's Service, the one that the API server asks first
	Address       string   // host:port where this process serves the webhook

	cert   atomic.Pointer[tls.Certificate] // served
	bundle atomic.Pointer[[]byte]
	// next is the successor of cert whose authority a look has published. Only looks touch it.
	next *tls.Certificate
}

// NeedLeaderElection is false: every replica serves the webhook.
func (*Authority) NeedLeaderElection() bool { return false }

// Start keeps the certificate until ctx ends.
func (a *Authority) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		wait, reason := lookInterval, ""
		if err := a.look(ctx, time.Now()); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			wait, reason = retryInterval, err.Error()
		}
		switch reason {
		case told:
		case "":
			log.FromContext(ctx).Info("webhook certificate is in place")
		default:
			log.FromContext(ctx).Info("webhook certificate is not in place yet", "reason", reason)
		}
		told = reason
		timer.Reset(wait)
	}
}

// GetCertificate is for tls.Config.
func (a *Authority) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := a.cert.Load(); cert != nil {
		return cert, nil
	}
	return nil, errors.New("no certificate yet")
}

// Ready dials the own webhook server and verifies its certificate against the
// authority that stands in the webhook configuration. It is a healthz.Checker.
//
// It does not ask the API server to call back, though that alone would prove the
// whole way: the Service leads to ready replicas only, so that the first one could
// never become ready. A Service that also leads to those that are not would let real
// requests fail at every roll-out, at replicas that do not listen yet.
func (a *Authority) Ready(r *http.Request) error {
	bundle := a.bundle.Load()
	if bundle == nil {
		return errors.New("the webhook configuration does not hold our authority yet")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(*bundle)
	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{},
		Config:    &tls.Config{RootCAs: roots, ServerName: a.Names[0], MinVersion: tls.VersionTLS12},
	}
	conn, err := dialer.DialContext(ctx, "tcp", a.Address)
	if err != nil {
		return fmt.Errorf("call our own webhook: %w", err)
	}
	return conn.Close()
}

// look brings Secret, served certificate and webhook configuration into line.
func (a *Authority) look(ctx context.Context, now time.Time) error {
	pair, cert, err := a.agree(ctx, now)
	if err != nil {
		return err
	}
	if err := a.publish(ctx, pair.CA); err != nil {
		return err
	}
	if a.waits(cert, pair.CA, now) {
		a.next = cert
		return nil
	}
	a.next = nil
	a.cert.Store(cert)
	return nil
}

// waits says that the former certificate is served until the next look. The API
// servers must know an authority before anybody serves by it, and they learn of it by
// a watch, some later than others. The first certificate does not wait, nor one
// whose predecessor they would not trust any more.
func (a *Authority) waits(cert *tls.Certificate, ca []byte, now time.Time) bool {
	served := a.cert.Load()
	if served == nil || served.Leaf.Equal(cert.Leaf) || a.next != nil && a.next.Leaf.Equal(cert.Leaf) {
		return false
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	_, err := served.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now})
	return err == nil
}

// agree reads the pair from the Secret and replaces one that must be renewed. A
// conflict means that another replica was faster: its pair is taken at the next look.
func (a *Authority) agree(ctx context.Context, now time.Time) (Pair, *tls.Certificate, error) {
	var secret corev1.Secret
	err := a.Reader.Get(ctx, a.Secret, &secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return Pair{}, nil, fmt.Errorf("read Secret %s: %w", a.Secret, err)
	}
	pair := Pair{Cert: secret.Data[keyCert], Key: secret.Data[keyKey], CA: secret.Data[keyCA]}
	cert, err := pair.check(now, a.Names)
	if err == nil {
		return pair, cert, nil
	}
	log.FromContext(ctx).Info("making a webhook certificate", "reason", err.Error())
	former := pair.CA
	if pair, err = newPair(now, a.Names); err != nil {
		return Pair{}, nil, err
	}
	pair.CA = append(pair.CA, firstCertificate(former)...)
	secret.Data = map[string][]byte{keyCert: pair.Cert, keyKey: pair.Key, keyCA: pair.CA}
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: a.Secret.Namespace, Name: a.Secret.Name}
		err = a.Writer.Create(ctx, &secret)
	} else {
		err = a.Writer.Update(ctx, &secret)
	}
	if err != nil {
		return Pair{}, nil, fmt.Errorf("write Secret %s: %w", a.Secret, err)
	}
	cert, err = pair.check(now, a.Names)
	return pair, cert, err
}

// publish writes the authority into every webhook of the configuration.
func (a *Authority) publish(ctx context.Context, ca []byte) error {
	var config admissionv1.ValidatingWebhookConfiguration
	if err := a.Reader.Get(ctx, types.NamespacedName{Name: a.Configuration}, &config); err != nil {
		a.bundle.Store(nil)
		return fmt.Errorf("read webhook configuration %s: %w", a.Configuration, err)
	}
	old, changed := config.DeepCopy(), false
	for i := range config.Webhooks {
		if w := &config.Webhooks[i]; !bytes.Equal(w.ClientConfig.CABundle, ca) {
			w.ClientConfig.CABundle, changed = ca, true
		}
	}
	if changed {
		if err := a.Writer.Patch(ctx, &config, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("write webhook configuration %s: %w", a.Configuration, err)
		}
	}
	a.bundle.Store(&ca)
	return nil
}
