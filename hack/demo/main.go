// Command demo sends one prompt through a pool and shows that the answer is that
// of an instance which is not split, and that the movers moved exactly the bytes
// which the layouts say, from each writer to each reader. hack/demo.sh runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/test/cluster"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

type options struct {
	kubeconfig, context, namespace, pool, unsplit string
	tokens, answer                                int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	fs.StringVar(&o.context, "context", "", "context of it")
	fs.StringVar(&o.namespace, "namespace", "default", "namespace of the pool")
	fs.StringVar(&o.pool, "pool", "", "name of the pool")
	fs.StringVar(&o.unsplit, "unsplit", "", "pod:port of an instance that is not split, to compare with")
	fs.IntVar(&o.tokens, "tokens", 1000, "length of the prompt")
	fs.IntVar(&o.answer, "answer", 24, "length of the answer")
	if err := fs.Parse(args); err != nil {
		return err
	}
	c, err := cluster.Open(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	if err := c.WaitReady(ctx, o.namespace, o.pool, 2*time.Minute); err != nil {
		return err
	}
	pool, err := c.Pool(ctx, o.namespace, o.pool)
	if err != nil {
		return err
	}
	transfer, err := ask(ctx, c, o, pool.Spec.Model.Name, out)
	if err != nil {
		return err
	}
	return account(ctx, c, o, transfer, out)
}

// ask streams the answer of the pool and compares it; it returns the transfer's id.
func ask(ctx context.Context, c *cluster.Cluster, o options, model string, out io.Writer) (string, error) {
	words := make([]string, o.tokens)
	for i := range words {
		words[i] = fmt.Sprintf("word-%d", i*7919%1009)
	}
	prompt := strings.Join(words, " ")
	_, _ = fmt.Fprintf(out, "prompt of %d tokens: %.60s ...\nanswer, streamed: ", o.tokens, prompt)
	split, err := c.Complete(ctx, o.namespace, "services/"+o.pool+"-router:http", model, prompt, o.answer,
		func(piece string) { _, _ = fmt.Fprint(out, piece) })
	_, _ = fmt.Fprintln(out)
	if err != nil {
		return "", err
	}
	if split.Status != 200 || split.Error != "" {
		return "", fmt.Errorf("the pool answered status %d: %s", split.Status, split.Error)
	}
	whole, err := c.Complete(ctx, o.namespace, "pods/"+o.unsplit, model, prompt, o.answer, nil)
	if err != nil {
		return "", err
	}
	if whole.Status != 200 || whole.Text != split.Text {
		return "", fmt.Errorf("an unsplit instance answers otherwise (status %d): %s%s", whole.Status, whole.Text, whole.Error)
	}
	_, _ = fmt.Fprintf(out, "an instance that is not split answers the same %d tokens: the KV cache arrived whole\n", split.Chunks)
	return split.Transfer, nil
}

// side asks the agent of a role's only pod about a transfer.
func side(ctx context.Context, c *cluster.Cluster, o options, role, id string) (agentconfig.Instance, cluster.Transfer, error) {
	pods, err := c.Pods(ctx, o.namespace, o.pool, role)
	if err != nil {
		return agentconfig.Instance{}, cluster.Transfer{}, err
	}
	if len(pods) != 1 {
		return agentconfig.Instance{}, cluster.Transfer{}, fmt.Errorf("%d %s pods, expected one", len(pods), role)
	}
	instance, err := agentconfig.ParseInstance(pods[0].Annotations[v1alpha1.AnnotationLayout])
	if err != nil {
		return instance, cluster.Transfer{}, err
	}
	transfer, err := c.Transfer(ctx, &pods[0], id)
	return instance, transfer, err
}

// account prints predicted, copied and received bytes of each flow, and fails where they differ.
func account(ctx context.Context, c *cluster.Cluster, o options, transfer string, out io.Writer) error {
	prefill, sent, err := side(ctx, c, o, v1alpha1.RolePrefill, transfer)
	if err != nil {
		return err
	}
	decode, got, err := side(ctx, c, o, v1alpha1.RoleDecode, transfer)
	if err != nil {
		return err
	}
	copied, received := cluster.Bytes(sent.Flows), cluster.Bytes(got.Received)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "prefill rank\tdecode rank\tpredicted\tcopied\treceived\t")
	var total [3]int64
	differ := false
	for _, f := range kvlayout.Written(prefill.KV, prefill.KVType, prefill.Layout, decode.Layout, prefill.Block, o.tokens) {
		key := [2]int{f.Writer, f.Reader}
		row := [3]int64{f.Bytes, copied[key], received[key]}
		for i := range row {
			total[i] += row[i]
		}
		differ = differ || row[0] != row[1] || row[0] != row[2]
		_, _ = fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t\n", f.Writer, f.Reader, group(row[0]), group(row[1]), group(row[2]))
	}
	_, _ = fmt.Fprintf(table, "all\tall\t%s\t%s\t%s\t\n", group(total[0]), group(total[1]), group(total[2]))
	if err := table.Flush(); err != nil {
		return err
	}
	if differ {
		return errors.New("the bytes differ from those predicted")
	}
	return nil
}

// group writes a number with a comma before every third digit.
func group(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
