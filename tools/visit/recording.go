package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// replayed is the result of replaying a recording under Pegasus.
type replayed struct {
	Program string `json:"program"`
	Bytes   int64  `json:"bytes"`
	Replay  string `json:"replay"`
	Left    bool   `json:"left_out,omitempty"` // for its length
}

const (
	// mostRecorded is the size limit of one recording; longer ones aren't kept.
	mostRecorded = 8 << 20
	// mostCarried is the limit of the total size, packed: the shortest are kept.
	mostCarried = 15 << 20
)

// recording records the calls of programs to the driver, packs the recordings into one file, and replays them
// under Pegasus.
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
		files, err := v.recordClearly(inTime, dir, p)
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
	left, err := pack(filepath.Join(v.out, "calls.tar.gz"), dir, mostCarried)
	if err != nil {
		return all, err
	}
	for i, r := range all {
		all[i].Left = r.Bytes > mostRecorded || slices.Contains(left, r.Program)
	}
	if len(wrong) > 0 {
		return all, fmt.Errorf("replayed by Pegasus there is a difference: %s", strings.Join(wrong, " "))
	}
	return all, nil
}

// toRecord is a program to be recorded.
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
		for _, name := range []string{"bindings", "numba_kernels", "cupy_arrays", "torch_train"} {
			all = append(all, toRecord{name, []string{"python3", v.in("python", name+".py")}})
		}
	}
	return all
}

// recordClearly records a program, and returns the files. If the driver's memory lay at addresses that look like numbers,
// it records the program once more: the driver seldom chooses such addresses.
func (v *visit) recordClearly(ctx context.Context, dir string, p toRecord) (files []string, err error) {
	for range 3 {
		for _, file := range files {
			os.Remove(file)
		}
		err = v.recordOne(ctx, filepath.Join(dir, p.name), p.command)
		files, _ = filepath.Glob(filepath.Join(dir, p.name+".*"))
		if !slices.ContainsFunc(files, unclear) {
			break
		}
	}
	return files, err
}

// likeNumbers is the address of an allocation below 1 << 44: eight bytes with two small numbers of four bytes look the
// same, and the replay would translate them.
var likeNumbers = regexp.MustCompile(`>\[@[0-9a-f]{9,11}\]`)

// unclear reports whether a recording has such addresses.
func unclear(file string) bool {
	text, err := os.ReadFile(file)
	return err == nil && likeNumbers.Match(text)
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

// pack packs the files of a folder into one, the shortest first, up to a size limit. It returns the files
// left out.
func pack(to, dir string, most int64) (left []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return cmp.Compare(a.Size(), b.Size()) })
	f, err := os.Create(to)
	if err != nil {
		return nil, err
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
	for _, info := range all {
		if err := z.Flush(); err != nil {
			return nil, err
		}
		has, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if has+info.Size() > most {
			left = append(left, info.Name())
			continue
		}
		if err := add(t, dir, info); err != nil {
			return nil, err
		}
	}
	return left, nil
}

func add(t *tar.Writer, dir string, info fs.FileInfo) error {
	text, err := os.ReadFile(filepath.Join(dir, info.Name()))
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: info.Name(), Mode: 0o644, Size: int64(len(text)), ModTime: info.ModTime()}); err != nil {
		return err
	}
	if _, err := t.Write(text); err != nil {
		return err
	}
	return t.Flush()
}
