// Package peer runs benchmark kernels in separate programs, for comparison with the software accelerator: C
// that package ptxc made of PTX, compiled by gcc, or OpenCL C. The benchmarks call it. The programs map the
// device's memory, at the same address as on the device.
package peer

import (
	"bufio"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"pegasus/accel/ptx"
)

//go:embed c
var sources embed.FS

// Flags of the compilers. PTX specifies explicitly where a product and a sum are fused, and has no errno.
var (
	commonFlags = []string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "peer", "peer.c"}
	kernelFlags = []string{"-mfma", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing", "-fwrapv", "-fno-pie", "-no-pie",
		"-Wno-unused", "-Wno-maybe-uninitialized", "-Wno-type-limits", "kernels.c", "-lm"}
)

// Memory is the device's memory: a file, and its address on the device.
type Memory struct {
	File    *os.File
	Size    int
	Address uint64
}

// C starts a program that runs a module's kernels as C.
func C(m *ptx.Module, kernels string, memory Memory) (*Peer, error) {
	return start(m, "kernels.c", kernels, kernelFlags, memory)
}

// OpenCL starts a program that runs a module's kernels as OpenCL C, on one processor.
func OpenCL(m *ptx.Module, kernels string, memory Memory) (*Peer, error) {
	return start(m, "kernels.cl", kernels, []string{"opencl.c", "-lOpenCL"}, memory)
}

// Peer is a program that runs kernels. It stays for many runs.
type Peer struct {
	dir string // of its own
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start compiles a program around a file of kernels and starts it.
func start(m *ptx.Module, file, kernels string, flags []string, memory Memory) (*Peer, error) {
	dir, err := os.MkdirTemp("", "pegasus-peer-")
	if err != nil {
		return nil, err
	}
	p := &Peer{dir: dir}
	if err = os.WriteFile(filepath.Join(dir, file), []byte(kernels), 0o644); err == nil {
		err = p.compile(flags)
	}
	if err == nil {
		err = p.start(m, memory)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

func (p *Peer) compile(flags []string) error {
	files, err := fs.Sub(sources, "c")
	if err != nil {
		return err
	}
	if err := os.CopyFS(p.dir, files); err != nil {
		return err
	}
	cmd := exec.Command("gcc", slices.Concat(commonFlags, flags)...)
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, out)
	}
	return nil
}

func (p *Peer) start(m *ptx.Module, memory Memory) error {
	args := []string{fmt.Sprint(memory.Size), fmt.Sprint(memory.Address), "kernels.cl"}
	for _, f := range m.Kernels {
		args = append(args, f.Name)
	}
	p.cmd = exec.Command("./peer", args...)
	p.cmd.Dir = p.dir
	p.cmd.Env = append(os.Environ(), "POCL_DEVICES=basic", "POCL_CACHE_DIR="+p.dir)
	p.cmd.ExtraFiles = []*os.File{memory.File}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.out = bufio.NewReader(out)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	return p.cmd.Start()
}

// Launch is one execution of a kernel, as struct launch in peer.h.
type Launch struct {
	Kernel      uint32 // number in the module
	Grid, Block [3]uint32
	Used        uint32 // bytes of Params
	Params      [256]byte
}

// NewLaunch describes the launch of a kernel of a module.
func NewLaunch(m *ptx.Module, kernel string, grid, block [3]uint32, params []byte) Launch {
	l := Launch{Grid: grid, Block: block, Used: uint32(len(params))}
	l.Kernel = uint32(slices.IndexFunc(m.Kernels, func(f *ptx.Func) bool { return f.Name == kernel }))
	copy(l.Params[:], params)
	return l
}

// Run executes launches one after the other and returns the processor time that they took.
func (p *Peer) Run(launches []Launch) (time.Duration, error) {
	request, err := binary.Append(binary.LittleEndian.AppendUint32(nil, uint32(len(launches))), binary.LittleEndian, launches)
	if err != nil {
		return 0, err
	}
	if _, err := p.in.Write(request); err != nil {
		return 0, err
	}
	var took uint64
	err = binary.Read(p.out, binary.LittleEndian, &took)
	return time.Duration(took), err
}

// Close ends the program and removes it.
func (p *Peer) Close() error {
	p.in.Close()
	return errors.Join(p.cmd.Wait(), os.RemoveAll(p.dir))
}
