package switches

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Load makes the kernel record the states of threads. The error is one line.
func Load() (*Table, error) {
	files, err := load()
	if err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("it needs CAP_BPF and CAP_PERFMON: %w", err)
		}
		return nil, fmt.Errorf("let the kernel note thread switches: %w", err)
	}
	t, err := Open(files)
	if err != nil {
		closeAll(files)
	}
	return t, err
}

func load() (files []*os.File, err error) {
	if err := inHostNamespace(); err != nil {
		return nil, err
	}
	at, err := findOffsets()
	if err != nil {
		return nil, err
	}
	table, err := ebpf.NewMap(&ebpf.MapSpec{
		Name:       tableName,
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  tableBytes,
		MaxEntries: 1,
		Flags:      unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, fmt.Errorf("make a table: %w", err)
	}
	defer table.Close()
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	if files, err = keep(files, table.FD(), tableName); err != nil {
		return files, err
	}
	for _, p := range []struct {
		event string
		code  asm.Instructions
	}{{"sched_wakeup", onWakeup(at)}, {"sched_switch", onSwitch(at)}} {
		if files, err = attach(files, table, p.event, p.code); err != nil {
			return files, fmt.Errorf("at %s: %w", p.event, err)
		}
	}
	return files, nil
}

// attach runs a program at a tracepoint for as long as the added file is open.
func attach(files []*os.File, table *ebpf.Map, event string, code asm.Instructions) ([]*os.File, error) {
	if err := code.AssociateMap(tableName, table); err != nil {
		return files, err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "pegasus_" + event[len("sched_"):],
		Type:         ebpf.Tracing,
		AttachType:   ebpf.AttachTraceRawTp,
		AttachTo:     event,
		Instructions: code,
		License:      "GPL", // the tracepoints' arguments are available to GPL programs only
	})
	if err != nil {
		return files, err
	}
	defer program.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: program, AttachType: ebpf.AttachTraceRawTp})
	if err != nil {
		return files, err
	}
	defer l.Close()
	held, ok := l.(interface{ FD() int })
	if !ok {
		return files, errors.New("its link has no descriptor")
	}
	return keep(files, held.FD(), event)
}

// keep adds a duplicate of a descriptor.
func keep(files []*os.File, fd int, name string) ([]*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return files, err
	}
	return append(files, os.NewFile(uintptr(own), "bpf:"+name)), nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// hostNamespace is the first PID namespace's inode, PROC_PID_INIT_INO.
const hostNamespace = "pid:[4026531836]"

// inHostNamespace returns an error unless our thread numbers are the kernel's own.
func inHostNamespace() error {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != hostNamespace {
		return fmt.Errorf("this process is in a PID namespace of its own (%s)", ns)
	}
	return nil
}

// findOffsets returns the offsets of fields from the kernel's BTF.
func findOffsets() (at offsets, err error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return at, fmt.Errorf("the kernel doesn't describe its types: %w", err)
	}
	if err := checkArguments(kernel); err != nil {
		return at, err
	}
	var task *btf.Struct
	if err := kernel.TypeByName("task_struct", &task); err != nil {
		return at, err
	}
	for _, f := range []struct {
		to   *int16
		size int
		path []string
	}{
		{&at.pid, 4, []string{"pid"}},
		{&at.cpu, 4, []string{"thread_info", "cpu"}},
		{&at.ran, 8, []string{"se", "sum_exec_runtime"}},
		{&at.waited, 8, []string{"sched_info", "run_delay"}},
		{&at.chosen, 8, []string{"sched_info", "pcount"}},
	} {
		if *f.to, err = offset(task, f.size, f.path...); err != nil {
			return at, err
		}
	}
	return at, nil
}

// checkArguments verifies that sched_switch has the state of the stopping thread, as since Linux 5.18; there BPF's
// memory is no longer limited by RLIMIT_MEMLOCK, either.
func checkArguments(kernel *btf.Spec) error {
	var t *btf.Typedef
	if err := kernel.TypeByName("btf_trace_sched_switch", &t); err != nil {
		return err
	}
	if p, ok := t.Type.(*btf.Pointer); ok {
		if f, ok := p.Target.(*btf.FuncProto); ok && len(f.Params) == 5 {
			return nil
		}
	}
	return errors.New("sched_switch of this kernel has other arguments than those of Linux 5.18 and later")
}

// offset returns the offset of a field of the given size in a struct.
func offset(in *btf.Struct, bytes int, path ...string) (int16, error) {
	for _, m := range in.Members {
		if m.Name != path[0] {
			continue
		}
		rest := int16(0)
		if len(path) > 1 {
			inner, ok := m.Type.(*btf.Struct)
			if !ok {
				break
			}
			var err error
			if rest, err = offset(inner, bytes, path[1:]...); err != nil {
				return 0, err
			}
		} else if size, err := btf.Sizeof(m.Type); err != nil || size != bytes {
			break
		}
		return int16(m.Offset.Bytes()) + rest, nil
	}
	return 0, fmt.Errorf("the kernel's %s has no field %s as expected", in.Name, path[0])
}
