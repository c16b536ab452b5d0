// Package cli is the command line of tranche: what is typed, what is printed, and with which status it exits.
//
//	0  done, and all is well
//	1  it could not be done; the message says why and what to do
//	2  the command, a file or a value is wrong; nothing was changed
//	3  looked at, and not well: a status that needs somebody, an account that does not add up, a request that is refused
//
// Tables are for people and may change; --json is for programs.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/manifest"
	"tranche/cmd/tranche/internal/settings"
)

// The exit statuses.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNotWell = 3
)

// usageError is a command that was typed wrong, or a value that cannot be.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errNotWell ends a command whose findings are printed already.
var errNotWell = errors.New("not well")

// App is one call of the program.
type App struct {
	in       io.Reader
	out, err io.Writer
	now      func() time.Time
	json     bool
}

// Main runs the command line and returns the exit status. A first SIGINT or SIGTERM ends ctx, a second the process.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from now on a signal has its usual effect
	a := &App{in: os.Stdin, out: os.Stdout, err: os.Stderr, now: time.Now}
	return a.run(ctx, args)
}

func (a *App) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	command, err := root.ExecuteContextC(ctx)
	return a.exit(command, err)
}

// exit tells an error and chooses the status.
func (a *App) exit(command *cobra.Command, err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errNotWell):
		return exitNotWell
	}
	fmt.Fprintf(a.err, "tranche: %s\n", err)
	_, usage := errors.AsType[usageError](err)
	_, faults := errors.AsType[manifest.Faults](err)
	answer, told := errors.AsType[*api.Error](err)
	switch {
	case usage:
		fmt.Fprintf(a.err, "see: %s --help\n", command.CommandPath())
		return exitUsage
	case faults, errors.Is(err, manifest.ErrNone), told && answer.BadInput():
		return exitUsage
	}
	return exitFailed
}

// Version is the version of this program as the build recorded it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (version == "" || version == "(devel)") {
			version = s.Value[:min(12, len(s.Value))]
		}
	}
	if version == "" {
		version = "(devel)"
	}
	return version
}

// settings joins what the command's flags, the environment and the configuration file say.
func (a *App) settings(c *cobra.Command) (settings.Settings, error) {
	given := map[string]string{}
	c.Flags().Visit(func(f *pflag.Flag) {
		for _, v := range settings.Variables {
			if v.Flag == f.Name && f.Value.Type() == "string" {
				given[f.Name] = f.Value.String()
			}
		}
	})
	s, err := settings.Load(given, os.Getenv)
	if err != nil {
		return s, usageError{err}
	}
	return s, nil
}

// coordinator is a client for the coordinator that the settings name.
func (a *App) coordinator(c *cobra.Command) (*api.Client, settings.Settings, error) {
	s, err := a.settings(c)
	if err != nil {
		return nil, s, err
	}
	if s.Token == "" {
		return nil, s, usagef("no token for the coordinator at %s; give --token, TRANCHE_TOKEN, or `token:` in the configuration file (the coordinator printed the first admin token at its first start)", s.Coordinator)
	}
	client, err := api.New("coordinator", s.Coordinator, s.Token, s.CA)
	return client, s, err
}

// node is a client for the node that the settings name.
func (a *App) node(c *cobra.Command) (*api.Client, error) {
	s, err := a.settings(c)
	if err != nil {
		return nil, err
	}
	return api.New("node", s.Node, s.NodeToken, s.CA)
}

// checkListen refuses an address beyond this machine without TLS.
func checkListen(address string, tls bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--listen %q: give a host and a port, like 127.0.0.1:7070", address)
	}
	if !tls && !settings.IsLoopback(host) {
		return usagef("--listen %s: beyond this machine tokens would travel in the clear; give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy that has them", address)
	}
	return nil
}

// pairs reads arguments like tenant=acme.
func pairs(what string, args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, usagef("%s %q: write it like NAME=VALUE", what, arg)
		}
		if _, twice := out[name]; twice {
			return nil, usagef("%s %s is given twice; give it once", what, name)
		}
		out[name] = value
	}
	return out, nil
}
