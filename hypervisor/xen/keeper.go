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

// Keeper sees to it that every attached domU that runs has a hub, and that no other has. Hubs outlive
// the daemon that started them: the next one's Keeper finds them by their places.
type Keeper struct {
	// Dir is where hubs take their places.
	Dir string
	// Hub is the command that becomes the hub of a domU; it is to take the place.
	Hub func(domain string, d DomU, place string) []string
	Log *slog.Logger

	patience time.Duration // endTime, or less in tests

	mu      sync.Mutex
	want    map[grant.Domain]hypervisor.Machine
	running map[grant.Domain]child // those that were started here
	ending  map[int]time.Time      // since when processes that are still there have been told to end
	changed chan struct{}
}

// child is a hub that was started here.
type child struct {
	domain  string
	process *os.Process
	ended   bool // another is started soon
}

// NewKeeper is one that keeps no hubs yet.
func NewKeeper(dir string, hub func(domain string, d DomU, place string) []string, log *slog.Logger) *Keeper {
	return &Keeper{Dir: dir, Hub: hub, Log: log, patience: endTime, running: map[grant.Domain]child{}, changed: make(chan struct{}, 1)}
}

// lookEach is how often places are looked at when nothing tells of a change: a hub of another daemon
// may have died. One of ours is followed after a pause.
const (
	lookEach   = 2 * time.Second
	startAgain = 500 * time.Millisecond
)

// endTime is how long a hub may take to end, which its workers have to before it: some seconds. As long as one
// lives its domU doesn't quite die.
const endTime = 10 * time.Second

// Keep says which machines there are: all of them. Hubs of others are told to end at once.
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

// Served are the domUs that have a hub, whichever daemon has started it, and the domains that these serve.
func (k *Keeper) Served() map[uint16]string {
	served := map[uint16]string{}
	entries, _ := os.ReadDir(k.Dir) // there is none before the first hub
	for _, e := range entries {
		id, err := strconv.ParseUint(e.Name(), 10, 16)
		if err != nil {
			continue
		}
		if domain, _ := occupant(filepath.Join(k.Dir, e.Name())); domain != "" {
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

// Run keeps hubs until ctx ends. The hubs go on.
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

// look starts the hubs that are missing. Before anybody has said which machines there are none is
// started or ended.
func (k *Keeper) look(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.want == nil {
		return
	}
	k.endOthers()
	for id, m := range k.want {
		if _, ok := k.running[id]; ok || holder(k.place(id)) != 0 {
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
	command := k.Hub(m.Domain, DomU{ID: id, Memory: m.Memory}, k.place(id))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

func (k *Keeper) await(ctx context.Context, id grant.Domain, domain string, cmd *exec.Cmd) {
	err := cmd.Wait()
	k.Log.Info("a hub has ended", "domain", domain, "xen", id, "err", err)
	k.mu.Lock()
	k.running[id] = child{domain: domain, process: cmd.Process, ended: true}
	k.mu.Unlock()
	pause(ctx, startAgain)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.running, id)
	k.hint()
}

// endOthers ends the hubs of domUs that aren't wanted, or were when they had another name, and
// removes what is left of others. k.mu is held.
func (k *Keeper) endOthers() {
	before := k.ending
	k.ending = map[int]time.Time{}
	for id, c := range k.running { // it may not have its place yet
		if m, wanted := k.want[id]; !c.ended && (!wanted || m.Domain != c.domain) {
			k.end(c.domain, id, c.process.Pid, before, func(s syscall.Signal) error { return c.process.Signal(s) })
		}
	}
	entries, err := os.ReadDir(k.Dir)
	if err != nil {
		return // which look will say
	}
	for _, e := range entries {
		id, err := strconv.ParseUint(e.Name(), 10, 16)
		if err != nil {
			continue
		}
		path := filepath.Join(k.Dir, e.Name())
		m, wanted := k.want[grant.Domain(id)]
		serves, pid := occupant(path)
		switch {
		case pid != 0 && pid == k.pidOf(grant.Domain(id)):
		case wanted && (pid == 0 || serves == m.Domain || serves == ""):
		case pid == 0:
			os.Remove(path)
		default:
			k.end(serves, grant.Domain(id), pid, before, func(s syscall.Signal) error { return tell(path, pid, s) })
		}
	}
}

// end ends a hub: it is told to, and if that is in vain, killed. before are those that were told before.
func (k *Keeper) end(domain string, id grant.Domain, pid int, before map[int]time.Time, send func(syscall.Signal) error) {
	since, told := before[pid]
	signal := syscall.SIGTERM
	switch {
	case !told:
		since = time.Now()
		k.Log.Info("a domU is to be served no more: ending its hub", "domain", domain, "xen", id)
	case time.Since(since) > k.patience:
		signal = syscall.SIGKILL
		k.Log.Warn("a hub doesn't end: killing it", "domain", domain, "xen", id, "process", pid)
	}
	k.ending[pid] = since
	if err := send(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		k.Log.Warn("end a hub", "domain", domain, "process", pid, "err", err)
	}
}

func (k *Keeper) pidOf(id grant.Domain) int {
	if c, ok := k.running[id]; ok {
		return c.process.Pid
	}
	return 0
}

func (k *Keeper) place(id grant.Domain) string {
	return filepath.Join(k.Dir, strconv.Itoa(int(id)))
}
