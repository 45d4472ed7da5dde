package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pegasus/backend/control"
)

// daemon is a daemon that the visit runs.
type daemon struct {
	v   *visit
	dir string
	cmd *exec.Cmd
}

// config is the daemon's variable configuration.
type config struct {
	accelerator string // more lines of the accelerator
	domains     string // tables of domains; "" for one called visit
}

// start starts a daemon with the driver's device.
func (v *visit) start(c config) (*daemon, error) {
	if c.domains == "" {
		c.domains = "[[domain]]\nname = \"visit\"\n"
	}
	text := fmt.Sprintf("[[accelerator]]\nname = \"gpu0\"\ntype = \"nvidia\"\nlibrary = %q\n%s\n%s", v.driver, c.accelerator, c.domains)
	return v.launch(text, v.environment())
}

// startGPU starts the software accelerator that stands for a device, and makes our library its driver.
func (v *visit) startGPU() (err error) {
	v.driver = v.in("guest/libcuda.so.1")
	v.gpu, err = v.launch("[[accelerator]]\nname = \"soft0\"\ntype = \"soft\"\nmemory = \"1GiB\"\npolicy = \"none\"\nkernel_timeout = \"1h\"\n"+
		"[[domain]]\nname = \"gpu\"\n", os.Environ())
	return err
}

func (v *visit) launch(text string, env []string) (*daemon, error) {
	dir, err := os.MkdirTemp(v.dir, "d")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	at := filepath.Join(dir, "pegasus.toml")
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	d := &daemon{v: v, dir: dir}
	d.cmd = exec.Command(v.in("bin/pegasusd"), "--private", "--linger", "10m", "--runtime-dir", dir, "--config", at, "--ready-fd", "3")
	d.cmd.ExtraFiles = []*os.File{w}
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.Env = v.log, v.log, env
	err = d.cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	r.SetReadDeadline(time.Now().Add(time.Minute))
	if said, _ := bufio.NewReader(r).ReadString('\n'); said != "ready\n" {
		d.stop()
		return nil, fmt.Errorf("pegasusd: %s", strings.TrimSpace(said))
	}
	return d, nil
}

// stop ends the daemon, and its guests.
func (d *daemon) stop() {
	d.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { d.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		d.cmd.Process.Kill()
		<-ended
	}
	os.RemoveAll(d.dir)
}

func (d *daemon) socket(domain string) string { return filepath.Join(d.dir, "domains", domain, "sock") }

// guest returns a command that runs a program as a guest of a domain.
func (d *daemon) guest(ctx context.Context, domain, name string, args ...string) *exec.Cmd {
	all := append([]string{"run", "--runtime-dir", d.dir, "--domain", domain, "--", name}, args...)
	env := d.v.environment()
	if d.v.cuda >= 13000 { // the programs there were built with that version, and must see the same
		env = append(env, "PEGASUS_CUDA=13.0")
	}
	return d.v.program(ctx, env, d.v.in("bin/pegasus"), all...)
}

// domains returns the state of its domains.
func (d *daemon) domains(ctx context.Context) (map[string]control.Domain, error) {
	var list []control.Domain
	if err := d.list(ctx, "domains", &list); err != nil {
		return nil, err
	}
	all := map[string]control.Domain{}
	for _, one := range list {
		all[one.Name] = one
	}
	return all, nil
}

// accelerator returns the state of its accelerator.
func (d *daemon) accelerator(ctx context.Context) (control.Accelerator, error) {
	var list []control.Accelerator
	if err := d.list(ctx, "accelerators", &list); err != nil {
		return control.Accelerator{}, err
	}
	if len(list) != 1 {
		return control.Accelerator{}, fmt.Errorf("pegasus accelerators: %d accelerators, want 1", len(list))
	}
	return list[0], nil
}

// list decodes the output of a command of pegasus.
func (d *daemon) list(ctx context.Context, command string, to any) error {
	out, err := d.v.program(ctx, d.v.environment(), d.v.in("bin/pegasus"), command, "--runtime-dir", d.dir, "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, to)
	}
	if err != nil {
		return fmt.Errorf("pegasus %s: %w", command, err)
	}
	return nil
}

// places returns the paths where a driver's library may be, if none is given.
func places() []string {
	all := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	if out, err := exec.Command("ldconfig", "-p").Output(); err == nil {
		for l := range strings.Lines(string(out)) {
			if name, path, ok := strings.Cut(strings.TrimSpace(l), " => "); ok && strings.HasPrefix(name, "libcuda.so.1 ") && strings.Contains(name, "x86-64") {
				all = append(all, filepath.Dir(path))
			}
		}
	}
	return append(all, "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/compat")
}

// findDriver finds NVIDIA's library.
func (v *visit) findDriver() error {
	if v.driver != "" {
		if _, err := os.Stat(v.driver); err != nil {
			return fmt.Errorf("--driver: %w", err)
		}
		return nil
	}
	for _, dir := range places() {
		if path := filepath.Join(dir, "libcuda.so.1"); dir != "" {
			if _, err := os.Stat(path); err == nil {
				v.driver = path
				return nil
			}
		}
	}
	return errors.New("there is no libcuda.so.1 in " + strings.Join(places(), ", ") + ": say where with --driver, or try with --rehearse")
}

// only returns a folder that contains only the driver's library.
func (v *visit) only() string {
	dir := filepath.Join(v.dir, "driver")
	if os.Mkdir(dir, 0o755) == nil {
		os.Symlink(v.driver, filepath.Join(dir, "libcuda.so.1"))
	}
	return dir
}
