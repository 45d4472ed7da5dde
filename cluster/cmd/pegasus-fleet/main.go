// Pegasus-fleet shows the accelerators of a Kubernetes cluster and their domains. Pegasus executes it as `pegasus fleet`,
// and kubectl as a plugin, with the name kubectl-pegasus.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"pegasus/cluster/fleet"
	flags "pegasus/internal/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Exit codes, as of pegasus.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func run(ctx context.Context, name string, args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == "fleet" { // kubectl pegasus fleet
		args = args[1:]
	}
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	o := flags.Flags(f)
	err := f.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(out, "usage: %s %s\n\nThe accelerators of a Kubernetes cluster, and where shares are not kept.\n\nFlags:\n%s", name, flags.Arguments, f.FlagUsagesWrapped(80))
		return exitOK
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case err == nil:
		err = o.Check(f.Changed)
	}
	if err != nil {
		fmt.Fprintf(errs, "%s: %v\n", name, err)
		return exitUsage
	}
	p := program{Options: o, in: in, out: out, errs: errs}
	if err := p.run(ctx); err != nil {
		fmt.Fprintf(errs, "%s: %v\n", name, err)
		return exitFailed
	}
	return exitOK
}

type program struct {
	*flags.Options
	in        io.Reader
	out, errs io.Writer
	client    kubernetes.Interface
	reader    *fleet.Reader
}

func (p *program) run(ctx context.Context) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: p.Context}).ClientConfig()
	if err != nil {
		return fmt.Errorf("address of the API server: %w; give --kubeconfig, or run it in a pod", err)
	}
	config.QPS, config.Burst = 100, 200
	config.UserAgent = flags.Program
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	p.reader = &fleet.Reader{Client: p.client, Namespace: p.Namespace, Selector: p.Selector, Direct: p.Direct}
	switch {
	case p.Listen != "":
		return p.serve(ctx)
	case p.Advise:
		return p.advise(ctx)
	}
	f, err := p.view(ctx)
	if err == nil {
		err = p.print(f)
	}
	return err
}

func (p *program) view(ctx context.Context) (*fleet.Fleet, error) {
	s, err := p.reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	return fleet.View(s), nil
}

func (p *program) print(f *fleet.Fleet) error {
	if !p.JSON {
		return fleet.Write(p.out, f)
	}
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(f)
}

// recordEvery is the period at which demand is recorded: the daemon reports the last two seconds.
const recordEvery = 2 * time.Second

// advise records demand for the window, and prints the fleet with the advice.
func (p *program) advise(ctx context.Context) error {
	var record fleet.Recorder
	var s *fleet.State
	for end := time.Now().Add(p.Window); ; {
		var err error
		if s, err = p.reader.Read(ctx); err != nil {
			return err
		}
		record.Record(s)
		rest := time.Until(end)
		if rest <= 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(rest, recordEvery)):
		}
	}
	f := fleet.View(s)
	a, err := fleet.Advise(s, f, &record, p.Moves)
	if err != nil {
		return err
	}
	a.Check(func(namespace, name string) (*corev1.Pod, error) {
		return p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	})
	f.Advice = a
	if err := p.print(f); err != nil || !p.Apply {
		return err
	}
	return p.apply(ctx, a)
}

// patience bounds the wait for the pods of one move.
const patience = 5 * time.Minute

func (p *program) apply(ctx context.Context, a *fleet.Advice) error {
	pods := 0
	for i := range a.Moves {
		if a.Moves[i].Why == "" {
			pods += len(a.Moves[i].Pods)
		}
	}
	if pods == 0 {
		fmt.Fprintln(p.errs, "there is no pod to evict")
		return nil
	}
	if !p.Yes {
		fmt.Fprintf(p.errs, "evict %d of these pods, which their controllers make anew? [y/N] ", pods)
		line, err := bufio.NewReader(p.in).ReadString('\n')
		if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			fmt.Fprintln(p.errs, "no pod was evicted")
			return nil
		}
	}
	m := fleet.Mover{Client: p.client, Patience: patience, Every: time.Second, Log: func(format string, args ...any) { fmt.Fprintf(p.errs, format+"\n", args...) }}
	done, err := m.Apply(ctx, a)
	fmt.Fprintf(p.errs, "claims moved: %d\n", done)
	return err
}

// serve serves the page until ctx ends.
func (p *program) serve(ctx context.Context) error {
	l, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	page := fleet.Page{Read: p.view, Least: 5 * time.Second}
	server := http.Server{Handler: page.Handler(), ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Fprintf(p.errs, "the page is at http://%s/\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
