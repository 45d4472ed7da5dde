package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// notHere is the exit status of a program that cannot run here.
const notHere = 77

// environment returns the environment of a program that uses the device without Pegasus.
func (v *visit) environment(more ...string) []string {
	path := v.only() // no other library in the driver's directory precedes those that programs bring
	var env []string
	for _, e := range os.Environ() {
		switch {
		case strings.HasPrefix(e, "LD_LIBRARY_PATH="):
			path += ":" + strings.TrimPrefix(e, "LD_LIBRARY_PATH=")
		case !strings.HasPrefix(e, "PEGASUS_"):
			env = append(env, e)
		}
	}
	if dir := filepath.Dir(v.driver); !isSystem(dir) {
		path += ":" + dir
	}
	if v.libraries != "" {
		path += ":" + v.libraries
	}
	env = append(env, "LD_LIBRARY_PATH="+path, "PYTHONUNBUFFERED=1", "ACC_DEVICE_TYPE=nvidia", "OMP_TARGET_OFFLOAD=mandatory", "PEGASUS_VISIT="+v.size(1, 0))
	if v.gpu != nil {
		env = append(env, "PEGASUS_SOCKET="+v.gpu.socket("gpu"))
	}
	return append(env, more...)
}

// isSystem reports whether the loader searches a folder by default. In LD_LIBRARY_PATH such a folder would
// precede those of the libraries that programs bring, such as PyTorch's own.
func isSystem(dir string) bool {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return slices.Contains([]string{"/lib", "/lib64", "/lib/x86_64-linux-gnu", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu"}, dir)
}

// program returns a program with its arguments, in a process group that ends with the context.
func (v *visit) program(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = env
	cmd.Stderr = v.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// output runs a program and returns its output, which is also logged as it comes.
func (v *visit) output(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	fmt.Fprintf(v.log, "$ %s\n", strings.Join(cmd.Args, " "))
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, v.log), io.MultiWriter(&said, v.log)
	err := cmd.Run()
	var end *exec.ExitError
	switch {
	case ctx.Err() != nil:
		err = errors.New("it took too long, and was ended")
	case errors.As(err, &end) && end.ExitCode() == notHere:
		err = errSkip(last(out.Bytes()))
	case err != nil:
		err = fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Args[0]), err, last(said.Bytes()))
	}
	return out.Bytes(), err
}

// last returns the last line of a text.
func last(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// ask runs a program and returns its findings.
func (v *visit) ask(ctx context.Context, cmd *exec.Cmd) (findings, error) {
	out, err := v.output(ctx, cmd)
	f, wrong := read(out)
	var why errSkip
	if errors.As(wrong, &why) || err == nil {
		err = wrong
	}
	return f, err
}

// alone returns a step that runs a program without Pegasus.
func alone(name string, args ...string) func(context.Context, *visit) (any, error) {
	return func(ctx context.Context, v *visit) (any, error) {
		return v.ask(ctx, v.program(ctx, v.environment(), v.in(name), args...))
	}
}

// bothWays returns a step that runs a program without Pegasus, and then under it, and compares.
func bothWays(name string, args ...string) func(context.Context, *visit) (any, error) {
	return func(ctx context.Context, v *visit) (any, error) { return v.bothWays(ctx, v.in(name), args...) }
}

func (v *visit) bothWays(ctx context.Context, program string, args ...string) (findings, error) {
	f, err := v.ask(ctx, v.program(ctx, v.environment(), program, args...))
	if err != nil {
		var why errSkip
		if !errors.As(err, &why) {
			err = fmt.Errorf("without Pegasus: %w", err)
		}
		return f, err
	}
	d, err := v.start(config{})
	if err != nil {
		return f, err
	}
	defer d.stop()
	g, err := v.ask(ctx, d.guest(ctx, "visit", program, args...))
	if err != nil {
		return f, fmt.Errorf("by Pegasus: %v", err) // also if it reports that it cannot run: without Pegasus it could
	}
	return f.beside(byPegasus, g)
}

// python returns a step that runs one of our Python programs both ways.
func python(name string, args ...string) func(context.Context, *visit) (any, error) {
	return func(ctx context.Context, v *visit) (any, error) {
		python, err := exec.LookPath("python3")
		if err != nil {
			return nil, skip("there is no python3")
		}
		return v.bothWays(ctx, python, append([]string{v.in("python", name)}, args...)...)
	}
}
