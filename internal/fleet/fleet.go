// Package fleet has the command line of `pegasus fleet`, which two programs share: pegasus, and pegasus-fleet, which
// pegasus executes. Only the second one has the client of Kubernetes.
//
// Callers: cmd/pegasus, and cluster/cmd/pegasus-fleet.
//
// Trust boundary: none; the command line is the user's.
package fleet

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
)

// Program is the name of the program that pegasus executes. As a plugin of kubectl, its name is Plugin.
const (
	Program = "pegasus-fleet"
	Plugin  = "kubectl-pegasus"
)

// Arguments are the arguments of a usage line.
const Arguments = "[--advise [--window DURATION] [--moves N] [--apply [--yes]]] [--listen ADDRESS] [--direct] [--namespace NAME] [--selector LABELS] [--kubeconfig FILE] [--context NAME] [--json]"

// Options are the values of the flags.
type Options struct {
	Kubeconfig, Context string
	Namespace, Selector string
	Direct              bool
	Listen              string
	Advise              bool
	Window              time.Duration
	Moves               int
	Apply, Yes          bool
	JSON                bool
}

// Flags declares the flags.
func Flags(f *pflag.FlagSet) *Options {
	o := &Options{}
	f.BoolVar(&o.Advise, "advise", false, "advise which claims to move, by their recorded demand")
	f.DurationVar(&o.Window, "window", 20*time.Second, "with --advise: record demand for this `duration`, 0s to 1h")
	f.IntVar(&o.Moves, "moves", 2, "with --advise: move at most this `number` of claims, 1 to 20")
	f.BoolVar(&o.Apply, "apply", false, "with --advise: evict the pods of movable claims, after a question")
	f.BoolVar(&o.Yes, "yes", false, "with --apply: evict without a question")
	f.StringVar(&o.Listen, "listen", "", "serve the page for browsers at an `address` of the loopback interface, such as 127.0.0.1:8080")
	f.BoolVar(&o.Direct, "direct", false, "read metrics at the pods' addresses, from within the cluster, not through the API server")
	f.StringVar(&o.Namespace, "namespace", "pegasus-system", "`name` of the namespace of the drivers' pods")
	f.StringVar(&o.Selector, "selector", "app.kubernetes.io/name=pegasus", "`labels` of the drivers' pods")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "`file` with the cluster's address; else KUBECONFIG, ~/.kube/config, or the pod's service account")
	f.StringVar(&o.Context, "context", "", "`name` of the context in the kubeconfig")
	f.BoolVar(&o.JSON, "json", false, "print JSON, for programs")
	return o
}

// Check returns an error for values that are out of range or exclude each other. changed reports whether a flag was
// given.
func (o *Options) Check(changed func(flag string) bool) error {
	for _, flag := range []string{"window", "moves", "apply"} {
		if changed(flag) && !o.Advise {
			return fmt.Errorf("--%s goes with --advise", flag)
		}
	}
	switch {
	case o.Window < 0 || o.Window > time.Hour:
		return fmt.Errorf("--window %v: must be 0s to 1h", o.Window)
	case o.Moves < 1 || o.Moves > 20:
		return fmt.Errorf("--moves %d: must be 1 to 20", o.Moves)
	case o.Yes && !o.Apply:
		return errors.New("--yes goes with --apply")
	case o.Apply && o.JSON && !o.Yes:
		return errors.New("--apply with --json puts no question: add --yes")
	case o.Listen != "" && (o.Advise || o.JSON):
		return errors.New("--listen excludes --advise and --json")
	case o.Listen != "":
		return loopback(o.Listen)
	}
	return nil
}

// loopback returns an error for an address that other hosts or pods reach: the page needs no token.
func loopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen %s: must be an address of the loopback interface, since the page needs no token; reach it by `kubectl port-forward` or `ssh -L`", address)
	}
	return nil
}
