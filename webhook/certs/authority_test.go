package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var (
	noon  = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	names = []string{"pdpool-webhook.pdpool-system.svc"}
)

// world is an API server with what the chart installs.
func world(objects ...client.Object) client.Client {
	objects = append(objects, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "pdpool"},
		Webhooks:   []admissionv1.ValidatingWebhook{{Name: "validate.pdpool.dev"}},
	})
	return fake.NewClientBuilder().WithObjects(objects...).Build()
}

func emptySecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "pdpool-system", Name: "pdpool-webhook"}}
}

func authority(c client.Client) *Authority {
	return &Authority{
		Reader: c, Writer: c, Configuration: "pdpool", Names: names,
		Secret: types.NamespacedName{Namespace: "pdpool-system", Name: "pdpool-webhook"},
	}
}

func bundle(t *testing.T, c client.Client) []byte {
	t.Helper()
	var config admissionv1.ValidatingWebhookConfiguration
	if err := c.Get(t.Context(), types.NamespacedName{Name: "pdpool"}, &config); err != nil {
		t.Fatal(err)
	}
	return config.Webhooks[0].ClientConfig.CABundle
}

func TestLookFillsAnEmptySecretAndTheConfiguration(t *testing.T) {
	c := world(emptySecret())
	a := authority(c)
	if _, err := a.GetCertificate(nil); err == nil {
		t.Fatal("a certificate before the first look")
	}
	if err := a.look(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	if _, err := a.GetCertificate(nil); err != nil {
		t.Fatal(err)
	}
	if len(bundle(t, c)) == 0 {
		t.Fatal("no caBundle")
	}
}

func TestReplicasServeOneCertificateAndSecondLookWritesNothing(t *testing.T) {
	c := world(emptySecret())
	a, b := authority(c), authority(c)
	if err := a.look(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	first := bundle(t, c)
	b.Writer = readOnly{c, t}
	if err := b.look(t.Context(), noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, bundle(t, c)) {
		t.Fatal("the second replica replaced the authority")
	}
	if !bytes.Equal(a.cert.Load().Certificate[0], b.cert.Load().Certificate[0]) {
		t.Fatal("two replicas serve two certificates")
	}
}

// readOnly fails the test at any write.
type readOnly struct {
	client.Writer
	t *testing.T
}

func (r readOnly) Update(context.Context, client.Object, ...client.UpdateOption) error {
	r.t.Error("an update")
	return nil
}

func (r readOnly) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	r.t.Error("a patch")
	return nil
}

func TestRenewalKeepsTheFormerAuthorityTrusted(t *testing.T) {
	c := world(emptySecret())
	a := authority(c)
	if err := a.look(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	former := a.cert.Load()
	late := noon.Add(lifetime - renewBefore + time.Hour)
	if err := a.look(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	// The API servers learn of the new authority by a watch: the former certificate
	// is served until the next look, by the other replica too.
	b := authority(c)
	b.cert.Store(former)
	if err := b.look(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	for _, replica := range []*Authority{a, b} {
		if !bytes.Equal(former.Certificate[0], replica.cert.Load().Certificate[0]) {
			t.Fatal("the new certificate is served before its authority is known")
		}
		if err := replica.look(t.Context(), late.Add(lookInterval)); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(former.Certificate[0], replica.cert.Load().Certificate[0]) {
			t.Fatal("not renewed")
		}
	}
	if !bytes.Equal(a.cert.Load().Certificate[0], b.cert.Load().Certificate[0]) {
		t.Fatal("two replicas serve two certificates")
	}
	if n := bytes.Count(bundle(t, c), []byte("BEGIN CERTIFICATE")); n != 2 {
		t.Fatalf("the bundle holds %d authorities, expected the new and the former", n)
	}
	// A third one must not make the bundle grow.
	if err := a.look(t.Context(), late.Add(lifetime)); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(bundle(t, c), []byte("BEGIN CERTIFICATE")); n != 2 {
		t.Fatalf("the bundle holds %d authorities, expected 2", n)
	}
}

// TestLostSecretIsReplacedAtOnce: nobody trusts the former certificate any more, as
// its authority went with the Secret.
func TestLostSecretIsReplacedAtOnce(t *testing.T) {
	c := world(emptySecret())
	a := authority(c)
	if err := a.look(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	former := a.cert.Load()
	if err := c.Delete(t.Context(), emptySecret()); err != nil {
		t.Fatal(err)
	}
	if err := a.look(t.Context(), noon.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(former.Certificate[0], a.cert.Load().Certificate[0]) {
		t.Fatal("a certificate is served that the API server does not trust")
	}
}

func TestCheckRefuses(t *testing.T) {
	good, err := newPair(noon, names)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newPair(noon, names)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pair  Pair
		names []string
		at    time.Time
	}{
		"nothing":                  {Pair{}, names, noon},
		"another key":              {Pair{good.Cert, other.Key, good.CA}, names, noon},
		"another authority":        {Pair{good.Cert, good.Key, other.CA}, names, noon},
		"another name":             {good, []string{"elsewhere.svc"}, noon},
		"near its end":             {good, names, noon.Add(lifetime - renewBefore + time.Minute)},
		"clock before its start":   {good, names, noon.Add(-2 * clockSkew)},
		"garbage for an authority": {Pair{good.Cert, good.Key, []byte("x")}, names, noon},
	} {
		if _, err := c.pair.check(c.at, c.names); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := good.check(noon, names); err != nil {
		t.Fatal(err)
	}
}

func TestReadyNeedsAServerThatVerifiesAgainstTheConfiguration(t *testing.T) {
	c := world(emptySecret())
	a := authority(c)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: a.GetCertificate, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func(conn net.Conn) {
				_ = conn.(*tls.Conn).HandshakeContext(t.Context())
				_ = conn.Close()
			}(conn)
		}
	}()
	a.Address = listener.Addr().String()
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)
	if a.Ready(request) == nil {
		t.Fatal("ready before the first look")
	}
	// The certificates of this world are valid from now on, as a TLS client has only the real clock.
	if err := a.look(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := a.Ready(request); err != nil {
		t.Fatal(err)
	}
	stranger := authority(world(emptySecret()))
	if err := stranger.look(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	a.cert.Store(stranger.cert.Load())
	if a.Ready(request) == nil {
		t.Fatal("ready with a certificate that the API server does not trust")
	}
}
