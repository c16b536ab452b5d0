package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"tranche/cmd/tranche/internal/process"
)

// Load from processes of their own: this binary again, as `tranche bench client`, which asks and counts and does nothing else.
//
//	bench ──start──▶ client: connects, writes "ready"
//	      ──"go"───▶ asks until its time is over, writes its tally
//
// So the clients have a scheduler, a collector and sockets of their own, as they have when they are other machines; they still
// share the processors with the node.

const (
	clientProcesses = 2
	clientReady     = "ready"
	clientStartIn   = 30 * time.Second
)

// ClientOptions are those of `tranche bench client`.
type ClientOptions struct {
	Address     string // of the node
	Connections int
	For         time.Duration
	Random      bool // random admission ids
}

// Check says what is wrong with the options.
func (o ClientOptions) Check() error {
	switch {
	case o.Address == "":
		return errors.New("--address: give the HOST:PORT of a node")
	case o.Connections < 1 || o.Connections > 10_000:
		return fmt.Errorf("--connections %d: use 1 to 10000", o.Connections)
	case o.For <= 0 || o.For > time.Hour:
		return fmt.Errorf("--for %s: use up to 1h", o.For)
	}
	return nil
}

// countedWire is a tally between two processes.
type countedWire struct {
	Counts  [outcomes]int64 `json:"counts"`
	Latency map[int]int64   `json:"latency"` // by slot of a histogram
	Slowest time.Duration   `json:"slowest"`
	Took    time.Duration   `json:"took"`
}

func wireOf(t tally) countedWire {
	w := countedWire{Counts: t.counts, Latency: map[int]int64{}, Slowest: t.slowest, Took: t.took}
	for slot, n := range t.latency.counts {
		if n > 0 {
			w.Latency[slot] = n
		}
	}
	return w
}

func (w countedWire) tally() (t tally, err error) {
	t.counts, t.slowest, t.took = w.Counts, w.Slowest, w.Took
	for slot, n := range w.Latency {
		if slot < 0 || slot >= slots || n < 0 {
			return t, fmt.Errorf("a client counts %d latencies in slot %d", n, slot)
		}
		t.latency.counts[slot] = n
		t.latency.n += n
	}
	return t, nil
}

// RunClient waits for a line, asks for as long as it is to, and writes what came of it.
func RunClient(ctx context.Context, o ClientOptions, in io.Reader, out io.Writer) error {
	if err := o.Check(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, clientReady); err != nil {
		return err
	}
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the word to begin: %w", err)
	}
	t := closed(ctx, o.For, o.Connections, !o.Random, func(int) client {
		return overHTTP(o.Address, "/v1/admit", "", func(string) []byte { return acmeBody }, patience, oneAnswer)
	})
	return json.NewEncoder(out).Encode(wireOf(t))
}

// clientProcess is one that runs.
type clientProcess struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startClient returns when the client is ready.
func startClient(ctx context.Context, o ClientOptions) (*clientProcess, error) {
	args := []string{"bench", "client", "--address", o.Address, "--connections", strconv.Itoa(o.Connections), "--for", o.For.String()}
	if o.Random {
		args = append(args, "--random-ids")
	}
	made, err := process.Command(nil, args...)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, made.Path)
	cmd.Args, cmd.Env = made.Args, made.Env
	c := &clientProcess{Cmd: cmd}
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	c.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	if line, err := c.out.ReadString('\n'); err != nil || line != clientReady+"\n" {
		return nil, errors.Join(fmt.Errorf("a client began with %q: %w", line, err), c.end())
	}
	return c, nil
}

// end lets the process go; one that has not been told to begin ends by itself.
func (c *clientProcess) end() error { return errors.Join(c.in.Close(), c.Wait()) }

// result is what the process counted.
func (c *clientProcess) result() (tally, error) {
	var w countedWire
	if err := json.NewDecoder(c.out).Decode(&w); err != nil {
		return tally{}, errors.Join(fmt.Errorf("read what a client counted: %w", err), c.end())
	}
	if err := c.end(); err != nil {
		return tally{}, fmt.Errorf("a client ended: %w", err)
	}
	return w.tally()
}

// fromProcesses runs so many client processes at the same time, with so many connections in all.
func fromProcesses(ctx context.Context, n, connections int, o ClientOptions) (sum tally, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.For+patience+truthWithin+clientStartIn)
	defer cancel() // kills what still runs
	o.Connections = connections / n
	var all []*clientProcess
	for range n {
		c, failed := startClient(ctx, o)
		if err = failed; err != nil {
			break
		}
		all = append(all, c)
	}
	for _, c := range all {
		if err != nil {
			err = errors.Join(err, c.end())
		} else if _, failed := fmt.Fprintln(c.in, "go"); failed != nil {
			err = fmt.Errorf("tell a client to begin: %w", failed)
		}
	}
	if err != nil {
		return sum, err
	}
	for _, c := range all {
		t, failed := c.result()
		err = errors.Join(err, failed)
		sum.merge(&t)
	}
	return sum, err
}

// clientsApart is one budget over HTTP, with the load from two processes of their own, beside that from this one.
func clientsApart(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	node, err := w.serveNode()
	if err != nil {
		return err
	}
	apart := arm{"two processes", "256 connections from two client processes", func(ctx context.Context, d time.Duration) (t tally, err error) {
		return w.withBatches(true, func() tally {
			t, err = fromProcesses(ctx, clientProcesses, connections, ClientOptions{Address: node.address(), For: d, Random: b.Random})
			return t
		}), err
	}}
	all, err := b.alternate(ctx, result, w.httpArm(b, "this process", node, true), apart)
	if err != nil {
		return err
	}
	result.shown("two client processes against clients in the node's process", ratio(all["two processes"].rates(), all["this process"].rates()), "")
	result.Notes = append(result.Notes, "the processor's time of the two processes is their own and not counted")
	return w.settleBooks(ctx, result, "the node")
}
