package guests

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pegasus/backend/worker"
	"pegasus/backend/workers"
	"pegasus/callbuf"
	"pegasus/hypervisor"
)

// startWorker starts a worker for a seat and returns the guest's welcome. Once g.worker is set, the caller must await
// the worker's end, also after an error.
func (g *guest) startWorker(n hypervisor.Connection) (*offer, error) {
	reg := g.dom.reg
	job, page := g.job()
	layout, err := job.Geometry.Layout()
	if err != nil {
		return nil, err
	}
	var all opened
	defer all.close()
	files := worker.Files{Gate: page, Bell: g.dom.on.Bell.File(), Store: g.dom.attachment.Store, Hardware: g.dom.on.Hardware.Files(g.dom.name), GuestProcess: n.Process()}
	files.Segment = all.add(segmentFor(n, &job, layout))
	ours, theirs, err := socketPair()
	files.Guest = all.add(theirs, err)
	guestEnd := all.add(ours, err)
	if !reg.opt.Private {
		files.Listener = all.add(reg.workers.ListenForSuccessor(g.id))
	}
	if all.err != nil {
		return nil, all.err
	}
	p, err := reg.workers.Start(&job, files, func(pid int) { g.confine(pid) })
	if err != nil {
		return nil, err
	}
	g.assign(p, &job)
	o := &offer{segment: all.keep(files.Segment), socket: all.keep(guestEnd)}
	o.welcome = callbuf.Welcome{
		Version: callbuf.Version, WorkerPID: uint32(g.worker.PID), Features: job.Features, Generation: job.Generation,
		SegmentBytes: layout.SegmentBytes, ArenaBases: callbuf.ArenaBases,
		DeviceBases: callbuf.DeviceBases(g.win), DeviceBytes: job.DeviceBytes,
	}
	return o, nil
}

// job returns the job of a seat's worker, and the domain's gate page.
func (g *guest) job() (worker.Job, *os.File) {
	reg := g.dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	dom := g.dom
	c := dom.on.Settings()
	geometry := callbuf.DefaultGeometry()
	geometry.ArenaBytes = g.arena
	return worker.Job{
		ID: g.id, Domain: dom.name, Share: shareOf(dom.settings),
		Accelerator: worker.Accelerator{Name: c.Name, Type: c.Type, Cores: c.Cores, Memory: uint64(c.Memory), KernelTimeout: c.KernelTimeout, RefusePTX: c.RefusePTX,
			Device: c.Device, Library: c.Library, Context: uint64(c.Context)},
		Generation: 1, Geometry: geometry, Slot: g.slot, Slice: g.win, DeviceBytes: windowBytes(c.Type),
		GuestPID: g.pid, UID: dom.uid, GID: dom.uid, LogLevel: reg.logLevel(),
		SpinTime: reg.opt.Config.Daemon.SpinTime,
	}, dom.attachment.Page.File()
}

// confine puts a worker into the cgroups of its guest's domain.
func (g *guest) confine(pid int) {
	reg := g.dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, err := range reg.workers.Enter(g.dom.name, pid, g.dom.limits()) {
		g.dom.note("warning", "%v", err)
	}
}

// assign gives a seat its worker, and sends the worker the settings that have changed since its job was made.
func (g *guest) assign(p *workers.Process, job *worker.Job) {
	reg := g.dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	g.worker = p
	if g.doomed {
		p.Kill()
	}
	if o := g.standing(); o.KernelTimeout != job.Accelerator.KernelTimeout || *o.Share != job.Share || o.LogLevel != job.LogLevel {
		p.Order(o)
	}
}

// windowBytes returns the size of a worker's address window for device memory. Programs reserve addresses in proportion
// to a GPU's memory, once for each stream (PyTorch) or by dozens of gigabytes (llama.cpp), and some GPUs have hundreds.
func windowBytes(kind string) uint64 {
	if kind == "soft" {
		return callbuf.DeviceSliceBytes
	}
	return callbuf.WideSliceBytes
}

// segmentFor makes the segment of a connection, or borrows it from a connection that lends, and sets the segment's
// location in the job.
func segmentFor(n hypervisor.Connection, job *worker.Job, l callbuf.Layout) (*os.File, error) {
	lender, ok := n.(hypervisor.Lender)
	if !ok {
		return newSegment(l, job.Generation)
	}
	const may = callbuf.FeatureBell | callbuf.FeatureRouse
	f, loan, err := lender.Lend(hypervisor.Terms{Geometry: job.Geometry, Features: may})
	if err != nil {
		return nil, err
	}
	job.Features, job.Generation, job.Parts = callbuf.FeatureApart|loan.Features&may, loan.Generation, loan.Parts
	return f, nil
}

// newSegment makes a segment with its header written, so that guest and worker may map it in any order. No other
// process has it yet; the daemon keeps no mapping.
func newSegment(l callbuf.Layout, generation uint64) (*os.File, error) {
	f, err := callbuf.NewFile(l)
	if err != nil {
		return nil, err
	}
	mem, err := callbuf.Map(f, l.SegmentBytes)
	if err == nil {
		_, err = callbuf.Format(mem, l, generation, 0)
		err = errors.Join(err, callbuf.Unmap(mem))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "guest"), os.NewFile(uintptr(fds[1]), "worker"), nil
}

// opened holds files to close, except those kept, and the errors of opening them.
type opened struct {
	files []*os.File
	err   error
}

func (o *opened) add(f *os.File, err error) *os.File {
	if err != nil {
		o.err = errors.Join(o.err, err)
	}
	if f != nil {
		o.files = append(o.files, f)
	}
	return f
}

func (o *opened) keep(f *os.File) *os.File {
	for i := range o.files {
		if o.files[i] == f {
			o.files[i] = nil
		}
	}
	return f
}

func (o *opened) close() {
	for _, f := range o.files {
		closeFile(f)
	}
}
