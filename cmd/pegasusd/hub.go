package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/callbuf/grant"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/hypervisor/hub"
	"pegasus/hypervisor/kvm"
	"pegasus/hypervisor/weightjournal"
	"pegasus/hypervisor/xen"
	"pegasus/internal/logs"
	"pegasus/xenstore"
)

// runHub runs the process between a virtual machine and the daemon of a runtime directory.
func runHub(args []string, errs io.Writer) int {
	f := flag.NewFlagSet("pegasusd hub", flag.ContinueOnError)
	f.SetOutput(errs)
	dir := f.String("runtime-dir", control.SystemDir, "the daemon's `directory`")
	region := f.String("region", "", "the machine's memory, a `file`")
	domain := f.String("domain", "", "the machine's domain, a `name`")
	id := f.Uint("xen", 0, "the `number` that Xen has given the machine, which has no region")
	memory := f.Uint64("memory", 0, "of a domU: how many `bytes` it may share, 0 for 64 MiB")
	text := logs.Flag(f, "info")
	place := f.String("place", "", "of a domU: the `file` to lock")
	if f.Parse(args) != nil || f.NArg() > 0 || *id > math.MaxUint16 {
		return 2
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of our log may end before us
	// The machine's programs must not wait for the reader of our log.
	lines := newSink(errs)
	defer lines.close()
	var level slog.LevelVar
	level.UnmarshalText([]byte(*text))
	log := logger(lines, &level).With("domain", *domain)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go followLevel(ctx, *dir, &level)
	go weightjournal.Guard(ctx, filepath.Join(*dir, raisedDir), *domain, log, putBack)
	shared, err := openMemory(ctx, *region, xen.DomU{ID: grant.Domain(*id), Memory: *memory, Lives: func() (bool, error) { return domainLives(uint16(*id)) }}, log)
	if err == nil && *place != "" {
		var held *os.File
		if held, err = xen.LockHub(*place, *domain); err == nil {
			defer held.Close()
		}
	}
	if err == nil {
		err = hub.Hub{Memory: shared, Release: control.Release(), Log: log, Endpoint: func() (string, error) { return holdDomain(*dir, *domain, kvm.InContainer(*region)) }}.Run(ctx)
	}
	if err != nil {
		log.Error("the hub has ended", "err", err)
		return 1
	}
	return 0
}

// followEvery is the period at which a hub reads the level of the daemon's log.
const followEvery = 5 * time.Second

// followLevel gives a hub's log the level of the daemon's, until ctx ends. Without a daemon the level stays.
func followLevel(ctx context.Context, dir string, level *slog.LevelVar) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if c, err := client.Dial(filepath.Join(dir, control.SocketName)); err == nil {
			if l, err := c.Log(ctx); err == nil {
				level.UnmarshalText([]byte(l.Level))
			}
			c.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// openMemory opens the memory of a domU, if it is one.
func openMemory(ctx context.Context, region string, d xen.DomU, log *slog.Logger) (hub.Memory, error) {
	if d.ID == 0 {
		m, err := kvm.Open(region)
		if err != nil {
			return nil, err
		}
		log.Info("the hub is ready", "region", region, "bytes", m.Bytes())
		return m, nil
	}
	m, err := xen.Open(ctx, d, xenstore.Local(), log)
	if err != nil {
		return nil, err
	}
	log.Info("the hub is ready", "domid", d.ID)
	return m, nil
}

// holdDomain connects to the daemon so that it keeps the domain for as long as this process lives, and returns the
// domain's socket. The domain of a machine in a container is another program's: until that has created it, holdDomain
// returns an error, and does not create it with settings by default.
func holdDomain(dir, domain string, created bool) (string, error) {
	c, err := client.Dial(filepath.Join(dir, control.SocketName))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if created {
		if _, err := c.Domain(context.Background(), domain); err != nil {
			return "", err
		}
	}
	r, err := c.Hold(context.Background(), control.HoldParams{Domain: domain})
	var said *control.Error
	if errors.As(err, &said) && said.Code == control.CodeInvalid {
		err = &hub.Refusal{Err: err}
	}
	return r.Socket, err
}

// claimMachines claims a directory of machines for this daemon, and waits for the previous owner to end. With
// an unusable directory the daemon serves no machines, but everything else; the parts that read the directory
// log the cause.
func claimMachines(claim func(context.Context) (release func(), err error)) (release func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	release, err = claim(ctx)
	if err == nil || errors.Is(err, hypervisor.ErrServed) {
		return release, err
	}
	return func() {}, nil
}

// keepHubs runs the hubs of the machines with regions in a directory, beside the daemon.
func keepHubs(ctx context.Context, regions, dir string, known *machineWatcher, log *slog.Logger) {
	k := kvm.Keeper{
		Dir: regions, Valid: configs.CheckName, Log: log,
		Hub: func(region, domain string) []string {
			return []string{"/proc/self/exe", "hub", "--runtime-dir", dir, "--region", region, "--domain", domain}
		},
	}
	if known != nil {
		k.Off = known.isOff
	}
	if err := k.Run(ctx); err != nil {
		log.Error("virtual machines can't be served", "dir", regions, "err", err)
	}
}
