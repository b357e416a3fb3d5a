package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--what"}, {"--agent-image"}, {"--port-first=x"}, {"--leader-elect=perhaps"}} {
		var told bytes.Buffer
		if err := run(t.Context(), args, io.Discard, &told); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v", args, err)
		}
		if !strings.Contains(told.String(), "-agent-image") {
			t.Errorf("%v: no usage in %q", args, told.String())
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, &out, io.Discard); err != nil || out.String() != "manager "+version+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestBadConfiguration holds the one sentence, whose order is that of the flags.
func TestBadConfiguration(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	images := []string{"--agent-image=a", "--router-image=r", "--simulator-image=s"}
	in := append([]string{"--namespace=n"}, images...)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--agent-image must be set; --router-image must be set; --simulator-image must be set; --namespace must be set"},
		{images, "--namespace must be set"},
		{append(in[:4:4], "now"), `argument "now" is not a flag, and only flags are taken`},
		{append(in[:4:4], "--webhook-secret="), "--webhook-secret must be set"},
		{append(in[:4:4], "--webhook-port=0"), "--webhook-port 0 must be between 1 and 65535"},
		{append(in[:4:4], "--port-first=80"), "--port-first 80 and --port-last 29999 must span at least 64 ports between 1024 and 65535"},
		{append(in[:4:4], "--port-last=70000"), "--port-first 20000 and --port-last 70000 must span at least 64 ports between 1024 and 65535"},
		{append(in[:4:4], "--port-first=20000", "--port-last=20062"), "--port-first 20000 and --port-last 20062 must span at least 64 ports between 1024 and 65535"},
	} {
		err := run(t.Context(), c.args, io.Discard, io.Discard)
		if err == nil || errors.Is(err, errUsage) || err.Error() != c.want {
			t.Errorf("%v: %v, not %s", c.args, err, c.want)
		}
	}
	o, done, err := parse(append(in[:4:4], "--port-first=20000", "--port-last=20063"), io.Discard, io.Discard)
	if err != nil || done || o.defaults.Ports.Last != 20063 {
		t.Errorf("%+v, %v, %v", o, done, err)
	}
}

func TestServerVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.28.15":          "API server has version v1.28.15; native sidecars, which transfer agents are, need 1.29 or later",
		"v1.27.9-eks-12345": "API server has version v1.27.9-eks-12345; native sidecars, which transfer agents are, need 1.29 or later",
		"v1.29.0":           "",
		"v1.29.0-alpha.1":   "",
		"v1.36.0+k3s1":      "",
		"v2.0.0":            "",
		"our own":           "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/version" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"major":"1","minor":"x","gitVersion":%q}`, version)
		}))
		err := checkServerVersion(&rest.Config{Host: server.URL})
		server.Close()
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: %v", version, err)
		}
	}
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	if err := checkServerVersion(&rest.Config{Host: refusing.URL}); err == nil || !strings.Contains(err.Error(), "ask the API server at "+refusing.URL) {
		t.Errorf("%v", err)
	}
}
