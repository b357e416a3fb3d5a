package engine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// Render makes the command of one pod. It is deterministic. An error means that
// the input is none that this version can run; admission refuses it before.
func Render(in Input) (Command, error) {
	in.Layout = in.Layout.Defaulted()
	if in.BlockSize == 0 {
		in.BlockSize = DefaultBlockSize(in.Geometry)
	}
	if in.Served == "" {
		in.Served = in.Model
	}
	if err := in.check(); err != nil {
		return Command{}, err
	}
	transfer, err := in.transferConfig()
	if err != nil {
		return Command{}, err
	}
	args := []string{literal(in.Model)}
	args = append(args, in.serverFlags()...)
	args = append(args, in.parallelFlags()...)
	args = append(args, in.cacheFlags()...)
	args = append(args, "--kv-transfer-config", transfer)
	if in.Kind == kvlayout.Simulator {
		sim, err := in.simulatorFlags()
		if err != nil {
			return Command{}, err
		}
		args = append(args, sim...)
	}
	cmd := Command{Command: []string{"vllm", "serve"}, Args: append(args, in.Args...), Env: in.environment()}
	if in.Kind == kvlayout.Simulator {
		cmd.Command = []string{SimulatorBinary, "serve"}
	}
	return cmd, nil
}

// check holds what Render itself relies on; whether a layout works is decided by kvlayout.
func (in Input) check() error {
	movers := map[kvlayout.Engine]kvlayout.Mover{kvlayout.VLLM: kvlayout.MoverEngine, kvlayout.Simulator: kvlayout.MoverAgent}
	mover, ok := movers[in.Kind]
	switch l := in.Layout; {
	case !ok:
		return fmt.Errorf("engine type %q is unknown", in.Kind)
	case in.Role != kvlayout.Prefill && in.Role != kvlayout.Decode:
		return fmt.Errorf("role %q is neither prefill nor decode", in.Role)
	case in.Model == "":
		return fmt.Errorf("model is empty")
	case in.Mode != kvlayout.Write:
		return fmt.Errorf("transfer mode %q can't be rendered, only %s", in.Mode, kvlayout.Write)
	case in.Mover != mover:
		return fmt.Errorf("mover %q is not available for engine %s", in.Mover, in.Kind)
	case in.Pods < 1 || in.Pod < 0 || in.Pod >= in.Pods:
		return fmt.Errorf("pod %d of %d pods", in.Pod, in.Pods)
	case l.DPLocal*in.Pods != l.DP:
		return fmt.Errorf("%d pods of %d data parallel ranks each are not dp %d", in.Pods, l.DPLocal, l.DP)
	case in.KVType.Bytes() == 0:
		return fmt.Errorf("KV cache type %q is unknown", in.KVType)
	case in.Mover == kvlayout.MoverAgent && in.KVSocket == "":
		return fmt.Errorf("mover %s without a KV socket", in.Mover)
	}
	return nil
}

func (in Input) serverFlags() []string {
	return []string{
		"--served-model-name", literal(in.Served),
		"--host", "0.0.0.0",
		"--port", strconv.Itoa(in.Ports.HTTP),
	}
}

// parallelFlags renders the degrees. Several pods make a group with one HTTP
// server each (hybrid load balancing), so that every pod's ranks can be chosen.
func (in Input) parallelFlags() []string {
	l := in.Layout
	args := []string{"--tensor-parallel-size", strconv.Itoa(l.TP)}
	if l.PP > 1 {
		args = append(args, "--pipeline-parallel-size", strconv.Itoa(l.PP))
	}
	if l.DCP > 1 {
		args = append(args, "--decode-context-parallel-size", strconv.Itoa(l.DCP))
	}
	if l.DCP > 1 || l.Interleave > 1 { // without DCP it has no effect, but the agent's layout says it too
		args = append(args, "--cp-kv-cache-interleave-size", strconv.Itoa(l.Interleave))
	}
	if l.DP == 1 {
		return args
	}
	args = append(args,
		"--data-parallel-size", strconv.Itoa(l.DP),
		"--data-parallel-size-local", strconv.Itoa(l.DPLocal))
	leader := "127.0.0.1"
	if in.Pods > 1 {
		leader = in.Leader
		args = append(args, "--data-parallel-hybrid-lb", "--data-parallel-start-rank", strconv.Itoa(in.DPStart))
	}
	if in.Kind == kvlayout.Simulator { // its ranks share nothing that they would have to agree on
		return args
	}
	return append(args,
		"--data-parallel-address", leader,
		"--data-parallel-rpc-port", strconv.Itoa(in.Ports.RPC))
}

func (in Input) cacheFlags() []string {
	args := []string{
		"--block-size", strconv.Itoa(in.BlockSize),
		"--kv-cache-dtype", KVDType(in.KVType),
	}
	if in.MaxLength > 0 {
		args = append(args, "--max-model-len", strconv.Itoa(in.MaxLength))
	}
	if in.KVMemory > 0 {
		args = append(args, "--kv-cache-memory-bytes", strconv.FormatInt(in.KVMemory, 10))
	}
	return args
}

// KVDType is vLLM's spelling of a KV element type.
func KVDType(t kvlayout.KVType) string {
	switch t {
	case kvlayout.BF16:
		return "bfloat16"
	case kvlayout.FP16:
		return "float16"
	case kvlayout.FP8:
		return "fp8"
	case kvlayout.FP8E5M2:
		return "fp8_e5m2"
	case kvlayout.Auto:
	}
	return "auto"
}

// environment is what the operator sets. VLLM_PORT must be set: without it the
// engine takes random free ports, and a Service named vllm would set it to a URI.
func (in Input) environment() []EnvVar {
	env := []EnvVar{{Name: HostIP, Field: "status.podIP"}}
	if in.Kind == kvlayout.Simulator {
		return env
	}
	env = append(env,
		EnvVar{Name: "VLLM_PORT", Value: strconv.Itoa(in.Ports.VLLM)},
		EnvVar{Name: "VLLM_ENGINE_READY_TIMEOUT_S", Value: strconv.Itoa(int(StartupBudget(in.Kind).Seconds()))})
	env = append(env, StateEnv(in.Kind, in.Model)...)
	if in.Backend == XGMI && in.Role == kvlayout.Prefill {
		// 0.33.0 otherwise sleeps out the transfer timeout before it sees a completed xGMI copy.
		env = append(env, EnvVar{Name: "MORI_IO_XGMI_SCATTER_GATHER_THRESHOLD", Value: "0"})
	}
	return env
}

// literal keeps the kubelet from expanding a value that holds "$(".
func literal(s string) string { return strings.ReplaceAll(s, "$(", "$$(") }
