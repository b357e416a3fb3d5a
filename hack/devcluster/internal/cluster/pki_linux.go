package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is a certificate authority and what it signs: NAME.crt and NAME.key in dir.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// subject is who a certificate is for.
type subject struct {
	file  string   // NAME of the files
	name  string   // common name, the user in Kubernetes
	group string   // organization, the group in Kubernetes; may be empty
	hosts []string // names and addresses that it serves
}

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate("devcluster-ca")
	if err != nil {
		return nil, err
	}
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid, template.IsCA = true, true
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, cert: cert, key: key}
	return p, p.write("ca", der, key)
}

// newTemplate is a certificate that is valid for a year.
func newTemplate(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
	}, nil
}

// sign makes a certificate that is good for a server as well as for a client.
func (p *pki) sign(s subject) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c, err := newTemplate(s.name)
	if err != nil {
		return err
	}
	c.KeyUsage = x509.KeyUsageDigitalSignature
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if s.group != "" {
		c.Subject.Organization = []string{s.group}
	}
	for _, h := range s.hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, p.cert, key.Public(), p.key)
	if err != nil {
		return err
	}
	return p.write(s.file, der, key)
}

func (p *pki) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pk := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k})
	return errors.Join(
		os.WriteFile(filepath.Join(p.dir, name+".crt"), crt, 0o600),
		os.WriteFile(filepath.Join(p.dir, name+".key"), pk, 0o600),
	)
}

// kubeconfig writes a kubeconfig with the certificates of NAME inlined.
func (p *pki) kubeconfig(out, name, server string) error {
	var data [3]string
	for i, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		b, err := os.ReadFile(filepath.Join(p.dir, file))
		if err != nil {
			return err
		}
		data[i] = base64.StdEncoding.EncodeToString(b)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: devcluster
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %[4]s
  user:
    client-certificate-data: %[3]s
    client-key-data: %[5]s
contexts:
- name: devcluster
  context: {cluster: devcluster, user: %[4]s}
current-context: devcluster
`, server, data[0], data[1], name, data[2])
	return os.WriteFile(out, []byte(text), 0o600)
}

// makePKI writes all certificates and kubeconfigs of a cluster.
func (c *Cluster) makePKI() error {
	p, err := newPKI(c.path("pki"))
	if err != nil {
		return err
	}
	service := "kubernetes.default.svc"
	subjects := []subject{
		{file: "apiserver", name: "kube-apiserver", hosts: []string{
			"127.0.0.1", "localhost", controlPlane, apiServiceIP,
			"kubernetes", "kubernetes.default", service, service + ".cluster.local"}},
		{file: "apiserver-kubelet", name: "kube-apiserver-kubelet-client", group: "system:masters"},
		{file: "front-proxy", name: "front-proxy"},
		{file: "service-account", name: "service-account"},
		{file: "admin", name: "admin", group: "system:masters"},
		{file: "controller-manager", name: "system:kube-controller-manager"},
		{file: "scheduler", name: "system:kube-scheduler"},
		{file: "proxy", name: "system:kube-proxy"},
	}
	for n := 1; n <= c.Nodes; n++ {
		subjects = append(subjects, subject{
			file: nodeName(n), name: "system:node:" + nodeName(n), group: "system:nodes",
			hosts: []string{nodeName(n), nodeIP(n)},
		})
	}
	for _, s := range subjects {
		if err := p.sign(s); err != nil {
			return err
		}
	}
	err = p.kubeconfig(c.Kubeconfig(), "admin", fmt.Sprintf("https://127.0.0.1:%d", c.Port))
	names := []string{"admin", "controller-manager", "scheduler", "proxy"}
	for n := 1; n <= c.Nodes; n++ {
		names = append(names, nodeName(n))
	}
	for _, name := range names {
		err = errors.Join(err, p.kubeconfig(c.insideKubeconfig(name), name, "https://"+controlPlane+":6443"))
	}
	return err
}

// insideKubeconfig is a kubeconfig for use in the cluster's network namespaces.
func (c *Cluster) insideKubeconfig(name string) string {
	return c.path("pki", name+".kubeconfig")
}
