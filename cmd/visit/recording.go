package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// replayed is what became of a recording when it was replayed by Pegasus.
type replayed struct {
	Program string `json:"program"`
	Bytes   int64  `json:"bytes"`
	Replay  string `json:"replay"`
}

// mostRecorded is what one recording may have; longer ones aren't kept.
const mostRecorded = 8 << 20

// recording records the calls of programs with the driver, keeps them in one file, and replays them by Pegasus.
func recording(ctx context.Context, v *visit) (any, error) {
	dir := filepath.Join(v.dir, "calls")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	d, err := v.start(config{})
	if err != nil {
		return nil, err
	}
	defer d.stop()
	v.libraries = v.in("libgomp")
	defer func() { v.libraries = "" }()
	var all []replayed
	var wrong []string
	for _, p := range v.recorded() {
		inTime, cancel := context.WithTimeout(ctx, v.patience(30*time.Second))
		err := v.recordOne(inTime, filepath.Join(dir, p.name), p.command)
		files, _ := filepath.Glob(filepath.Join(dir, p.name+".*"))
		if err != nil || len(files) == 0 {
			all = append(all, replayed{Program: p.name, Replay: fmt.Sprintf("it wasn't recorded: %v", err)})
			cancel()
			continue
		}
		for _, file := range files {
			r := replayed{Program: filepath.Base(file), Replay: "the same"}
			if info, err := os.Stat(file); err == nil {
				r.Bytes = info.Size()
			}
			out, err := v.output(inTime, d.guest(inTime, "visit", v.in("record/replay"), "--within", "1e-5", file))
			if err != nil {
				r.Replay = last(out)
				wrong = append(wrong, r.Program)
			}
			if r.Bytes > mostRecorded {
				os.Remove(file)
			}
			all = append(all, r)
		}
		cancel()
	}
	if err := pack(filepath.Join(v.out, "calls.tar.gz"), dir); err != nil {
		return all, err
	}
	if len(wrong) > 0 {
		return all, fmt.Errorf("replayed by Pegasus there is a difference: %s", strings.Join(wrong, " "))
	}
	return all, nil
}

// toRecord is a program whose calls are worth having.
type toRecord struct {
	name    string
	command []string
}

func (v *visit) recorded() (all []toRecord) {
	for _, name := range []string{"vectoradd", "reduction", "histogram", "matmul"} {
		all = append(all, toRecord{name, []string{v.in("bench", name), "--iterations", "2", "--queue", "2", "--size", "256", "--quiet"}})
	}
	for _, part := range []string{"primary", "elsewhere", "across", "empty-extra", "in-order"} {
		all = append(all, toRecord{"semantics-" + part, []string{v.in("programs/semantics"), part}})
	}
	programs, _ := filepath.Glob(v.in("offload/*"))
	for _, p := range programs {
		all = append(all, toRecord{filepath.Base(p), []string{p}})
	}
	if !v.rehearsal {
		for _, name := range []string{"bindings", "numba_cuda", "cupy_arrays", "torch_train"} {
			all = append(all, toRecord{name, []string{"python3", v.in("python", name+".py")}})
		}
	}
	return all
}

// recordOne runs a program with the recorder before the driver.
func (v *visit) recordOne(ctx context.Context, file string, command []string) error {
	env := v.environment("PEGASUS_RECORD="+file, "PEGASUS_RECORD_DRIVER="+v.driver)
	for i, e := range env {
		if path, ok := strings.CutPrefix(e, "LD_LIBRARY_PATH="); ok {
			env[i] = "LD_LIBRARY_PATH=" + v.in("record") + ":" + path
		}
	}
	_, err := v.output(ctx, v.program(ctx, env, command[0], command[1:]...))
	return err
}

// pack makes one file of a folder's files.
func pack(to, dir string) (err error) {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	defer func() {
		for _, c := range []func() error{t.Close, z.Close, f.Close} {
			if e := c(); err == nil {
				err = e
			}
		}
	}()
	return t.AddFS(os.DirFS(dir))
}
