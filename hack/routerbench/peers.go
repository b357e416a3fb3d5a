package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// own is PDPool's router with a file of instances.
func own(program, dir string) launch {
	return launch{name: "pdpool", program: program, args: func(c *contender, p ports) ([]string, error) {
		var instances []map[string]any
		for i, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
			e := c.engines[i]
			instances = append(instances, map[string]any{
				"role": role, "model": "m", "layout": map[string]any{"tp": 1}, "engine": kvlayout.Simulator, "mover": kvlayout.MoverAgent, "pairing": "bench",
				"pods": []map[string]any{{"host": "127.0.0.1", "http": e.port(), "handshake": e.handshake, "notify": e.notify}},
			})
		}
		b, err := json.Marshal(instances)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "instances.json")
		return []string{
			"--listen=127.0.0.1:" + strconv.Itoa(p.http), "--metrics=127.0.0.1:" + strconv.Itoa(p.metrics),
			"--static=" + file, "--log-level=warn",
		}, os.WriteFile(file, b, 0o600)
	}}
}

// vllmRouter takes its engines from MoRIIO registrations.
func vllmRouter(program string, mode kvlayout.Mode) launch {
	return launch{name: "vllm-router-" + strings.ToLower(string(mode)), program: program, mode: mode, args: func(_ *contender, p ports) ([]string, error) {
		return []string{
			"--host", "127.0.0.1", "--port", strconv.Itoa(p.http), "--prometheus-port", strconv.Itoa(p.metrics),
			"--vllm-pd-disaggregation", "--kv-connector", "moriio", "--vllm-discovery-address", "127.0.0.1:" + strconv.Itoa(p.registrations),
			"--policy", "round_robin", "--log-level", "warning",
		}, nil
	}}
}

// smg gets its engines by its API.
func smg(program string) launch {
	return launch{
		name: "smg-write", program: program,
		args: func(_ *contender, p ports) ([]string, error) {
			return []string{
				"launch", "--host", "127.0.0.1", "--port", strconv.Itoa(p.http), "--prometheus-host", "127.0.0.1", "--prometheus-port", strconv.Itoa(p.metrics),
				"--pd-disaggregation", "--policy", "round_robin", "--log-level", "warn",
			}, nil
		},
		register: func(c *contender) error {
			for _, e := range c.engines {
				body, err := json.Marshal(map[string]any{
					"url": "http://" + e.address, "model_id": "m", "worker_type": strings.ToLower(string(e.role)), "runtime_type": "vllm",
					"connection_mode": "http", "kv_connector": "MoRIIOConnector",
					"labels": map[string]string{
						"moriio_mode": "write", "moriio_host": "127.0.0.1", "moriio_handshake_port": strconv.Itoa(e.handshake),
						"moriio_notify_port": strconv.Itoa(e.notify), "tp_size": "1", "dp_size": "1", "moriio_write_dispatch": "concurrent",
					},
				})
				if err != nil {
					return err
				}
				r, err := web.Post("http://"+c.host+"/workers", "application/json", strings.NewReader(string(body))) //nolint:noctx // bounded by the client
				if err != nil {
					return err
				}
				r.Body.Close() //nolint:errcheck // nothing is read of it
				if r.StatusCode >= http.StatusBadRequest {
					return fmt.Errorf("smg answers %d to a worker", r.StatusCode)
				}
			}
			return nil
		},
	}
}
