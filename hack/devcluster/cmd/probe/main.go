// Command probe is what the smoke test runs in pods: a web server with an admission
// webhook, and answers about the pod when it is called with a question.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = "usage: probe serve | get URL | lookup NAME | env PREFIX | ls GLOB | cat FILE | write FILE TEXT"

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	if args[0] == "serve" {
		return serve()
	}
	if len(args) < 2 {
		return errors.New(usage)
	}
	text, err := answer(args[0], args[1], args[2:])
	if err != nil {
		return err
	}
	if text = strings.TrimRight(text, "\n"); text != "" {
		fmt.Println(text)
	}
	return nil
}

func answer(question, arg string, rest []string) (string, error) {
	switch question {
	case "get":
		return get(arg)
	case "lookup":
		addrs, err := net.LookupHost(arg)
		return strings.Join(addrs, "\n"), err
	case "env":
		env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return !strings.HasPrefix(kv, arg) })
		slices.Sort(env)
		return strings.Join(env, "\n"), nil
	case "ls":
		all, err := filepath.Glob(arg)
		return strings.Join(all, "\n"), err
	case "cat":
		b, err := os.ReadFile(arg)
		return string(b), err
	case "write":
		return "", os.WriteFile(arg, []byte(strings.Join(rest, " ")), 0o644)
	}
	return "", errors.New(usage)
}

func get(url string) (string, error) {
	client := http.Client{Timeout: 3 * time.Second}
	res, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

// serve answers with the host's name on port 8080 and with the webhook on 8443, whose
// certificate is at /ca of the former.
func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cert, ca, err := selfSigned("probe.default.svc")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/ca", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(ca) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname()
		_, _ = fmt.Fprintln(w, name)
	})
	failed := make(chan error, 2)
	go func() { failed <- http.ListenAndServe(":8080", mux) }()
	go func() { failed <- serveWebhook(":8443", cert) }()
	log.Print("serving")
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
