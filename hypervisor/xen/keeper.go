package xen

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"pegasus/callbuf/grant"
	"pegasus/hypervisor"
)

// Keeper ensures that every attached running domU has a hub, and that no other domU has one. Hubs outlive the daemon
// that started them: the next daemon's Keeper finds them by their lock files. mu guards the fields below it; the methods
// are safe for concurrent use.
type Keeper struct {
	// Dir is the directory of the hubs' lock files.
	Dir string
	// Hub returns the command that becomes the hub of a domU and locks the file.
	Hub func(domain string, d DomU, lockFile string) []string
	Log *slog.Logger

	patience time.Duration // endTime, or less in tests

	mu      sync.Mutex
	want    map[grant.Domain]hypervisor.Machine
	running map[grant.Domain]child // those started here
	ending  map[int]time.Time      // when SIGTERM was sent to the hub processes that still exist
	changed chan struct{}
}

// child is a hub that was started here.
type child struct {
	domain  string
	process *os.Process
	ended   bool // a successor is started soon
}

// NewKeeper returns a Keeper without hubs.
func NewKeeper(dir string, hub func(domain string, d DomU, lockFile string) []string, log *slog.Logger) *Keeper {
	return &Keeper{Dir: dir, Hub: hub, Log: log, patience: endTime, running: map[grant.Domain]child{}, changed: make(chan struct{}, 1)}
}

// lookEach is the interval of checks without an event: a hub of another daemon may have died. A hub started here is
// restarted after startAgain.
const (
	lookEach   = 2 * time.Second
	startAgain = 500 * time.Millisecond
)

// endTime is how long a hub may take to end, after its workers: some seconds. As long as one lives its domU can't be
// destroyed completely.
const endTime = 10 * time.Second

// Keep sets all existing machines. It ends the hubs of other domUs at once.
func (k *Keeper) Keep(all []hypervisor.Machine) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.want = map[grant.Domain]hypervisor.Machine{}
	for _, m := range all {
		if m.Xen != 0 && m.State != hypervisor.MachineOff {
			k.want[grant.Domain(m.Xen)] = m
		}
	}
	k.endOthers()
	k.hint()
}

// Served returns the domUs that have a hub, of this daemon or an earlier one, and the domains that these serve.
func (k *Keeper) Served() map[uint16]string {
	served := map[uint16]string{}
	entries, _ := os.ReadDir(k.Dir) // missing before the first hub
	for _, e := range entries {
		id, err := strconv.ParseUint(e.Name(), 10, 16)
		if err != nil {
			continue
		}
		if domain, _ := lockHolder(filepath.Join(k.Dir, e.Name())); domain != "" {
			served[uint16(id)] = domain
		}
	}
	return served
}

func (k *Keeper) hint() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Run starts and ends hubs until ctx ends. The hubs continue.
func (k *Keeper) Run(ctx context.Context) error {
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return err
	}
	for ctx.Err() == nil {
		k.look(ctx)
		select {
		case <-k.changed:
		case <-time.After(lookEach):
		case <-ctx.Done():
		}
	}
	return nil
}

// look starts the missing hubs. Before the first Keep no hub is started or ended.
func (k *Keeper) look(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.want == nil {
		return
	}
	k.endOthers()
	for id, m := range k.want {
		if _, ok := k.running[id]; ok || holder(k.lockFile(id)) != 0 {
			continue
		}
		cmd, err := k.start(m)
		if err != nil {
			k.Log.Error("start a hub", "domain", m.Domain, "err", err)
			continue
		}
		k.running[id] = child{domain: m.Domain, process: cmd.Process}
		go k.await(ctx, id, m.Domain, cmd)
	}
}

func (k *Keeper) start(m hypervisor.Machine) (*exec.Cmd, error) {
	id := grant.Domain(m.Xen)
	command := k.Hub(m.Domain, DomU{ID: id, Memory: m.Memory}, k.lockFile(id))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

func (k *Keeper) await(ctx context.Context, id grant.Domain, domain string, cmd *exec.Cmd) {
	err := cmd.Wait()
	k.Log.Info("a hub has ended", "domain", domain, "domid", id, "err", err)
	k.mu.Lock()
	k.running[id] = child{domain: domain, process: cmd.Process, ended: true}
	k.mu.Unlock()
	pause(ctx, startAgain)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.running, id)
	k.hint()
}

// endOthers ends the hubs of domUs that should have none, and hubs under a former name of their domU. It removes the
// lock files of domUs that should have no hub and have none. The caller holds k.mu.
func (k *Keeper) endOthers() {
	before := k.ending
	k.ending = map[int]time.Time{}
	for id, c := range k.running { // it may not have its lock yet
		if m, wanted := k.want[id]; !c.ended && (!wanted || m.Domain != c.domain) {
			k.end(c.domain, id, c.process.Pid, before, func(s syscall.Signal) error { return c.process.Signal(s) })
		}
	}
	entries, err := os.ReadDir(k.Dir)
	if err != nil {
		return // look logs the error
	}
	for _, e := range entries {
		id, err := strconv.ParseUint(e.Name(), 10, 16)
		if err != nil {
			continue
		}
		path := filepath.Join(k.Dir, e.Name())
		m, wanted := k.want[grant.Domain(id)]
		serves, pid := lockHolder(path)
		switch {
		case pid != 0 && pid == k.pidOf(grant.Domain(id)):
		case wanted && (pid == 0 || serves == m.Domain || serves == ""):
		case pid == 0:
			os.Remove(path)
		default:
			k.end(serves, grant.Domain(id), pid, before, func(s syscall.Signal) error { return signalHolder(path, pid, s) })
		}
	}
}

// end ends a hub by SIGTERM, and kills it after the patience. before has the hubs that earlier looks have sent a
// signal.
func (k *Keeper) end(domain string, id grant.Domain, pid int, before map[int]time.Time, send func(syscall.Signal) error) {
	since, signalled := before[pid]
	signal := syscall.SIGTERM
	switch {
	case !signalled:
		since = time.Now()
		k.Log.Info("a domU is to be served no more: ending its hub", "domain", domain, "domid", id)
	case time.Since(since) > k.patience:
		signal = syscall.SIGKILL
		k.Log.Warn("a hub doesn't end: killing it", "domain", domain, "domid", id, "pid", pid)
	}
	k.ending[pid] = since
	if err := send(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		k.Log.Warn("end a hub", "domain", domain, "pid", pid, "err", err)
	}
}

func (k *Keeper) pidOf(id grant.Domain) int {
	if c, ok := k.running[id]; ok {
		return c.process.Pid
	}
	return 0
}

func (k *Keeper) lockFile(id grant.Domain) string {
	return filepath.Join(k.Dir, strconv.Itoa(int(id)))
}
