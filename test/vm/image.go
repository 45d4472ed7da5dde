package vm

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Image is what a guest boots: a kernel, and a file system in memory with the
// agent, the library, the benchmark programs and what these need of the host.
type Image struct {
	Kernel string
	base   string // an archive, kept between runs
}

// benchmarks are the programs that guests run.
var benchmarks = []string{"vectoradd", "blackscholes", "reduction", "busy", "srad", "calls"}

// Build makes the image of what is in build, which is the directory that `make
// build` fills, or finds the one that was made of the same files before.
func Build(build string) (*Image, error) {
	dir := filepath.Join(build, "vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	k, err := findKernel(dir)
	if err != nil {
		return nil, err
	}
	contents, err := collect(build, k)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(dir, contents.sum()+".cpio")
	if _, err := os.Stat(base); err == nil {
		return &Image{k.image, base}, nil
	}
	old, _ := filepath.Glob(filepath.Join(dir, "*.cpio"))
	for _, o := range old {
		os.Remove(o)
	}
	data, err := contents.archive()
	if err != nil {
		return nil, err
	}
	making := fmt.Sprintf("%s.%d", base, os.Getpid())
	if err := os.WriteFile(making, data, 0o644); err != nil {
		return nil, err
	}
	return &Image{k.image, base}, os.Rename(making, base)
}

// contents is what goes into an image: the host's files by their name in it.
type contents struct {
	names []string
	from  map[string]string
	init  string
}

func (c *contents) add(name, from string) {
	if _, ok := c.from[name]; !ok {
		c.names = append(c.names, name)
		c.from[name] = from
	}
}

// collect lists what an image needs, and says what of it is missing.
func collect(build string, k *kernel) (*contents, error) {
	c := &contents{from: map[string]string{}}
	c.add("/bin/busybox", "/bin/busybox")
	modules, err := k.inOrder(wantedModules...)
	if err != nil {
		return nil, err
	}
	var load strings.Builder
	for _, m := range modules {
		name := "/modules/" + filepath.Base(m)
		c.add(name, m)
		fmt.Fprintln(&load, "insmod", name)
	}
	c.init = strings.Replace(initScript, "LOAD MODULES\n", load.String(), 1)
	c.add("/bin/pegasus-guest", filepath.Join(build, "bin/pegasus-guest"))
	c.add("/sbin/mkfs.ext4", "/sbin/mkfs.ext4")
	c.add(libraryDir+"/libcuda.so.1", filepath.Join(build, "guest/libcuda.so.1"))
	for _, b := range benchmarks {
		c.add("/bench/"+b, filepath.Join(build, "bench", b))
	}
	for i := 0; i < len(c.names); i++ { // grows by what each needs
		if err := c.addNeeds(c.from[c.names[i]]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

const libraryDir = "/lib/x86_64-linux-gnu"

// addNeeds adds the libraries that a program or library of the host is linked with.
func (c *contents) addNeeds(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w; run `make build` and `make deps`", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, p.Filesz-1)
			if _, err := p.ReadAt(name, 0); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			c.add(string(name), string(name))
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, l := range libraries {
		name := libraryDir + "/" + l
		if c.from[name] != "" || strings.HasPrefix(l, "ld-linux") {
			continue
		}
		if _, err := os.Stat(name); err != nil {
			return fmt.Errorf("%s needs %s: %w", path, l, err)
		}
		c.add(name, name)
	}
	return nil
}

// sum tells contents apart.
func (c *contents) sum() string {
	h := sha256.New()
	fmt.Fprintln(h, c.init)
	for _, name := range c.names {
		st, err := os.Stat(c.from[name])
		if err == nil {
			fmt.Fprintln(h, name, c.from[name], st.Size(), st.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

func (c *contents) archive() ([]byte, error) {
	var a archive
	for _, d := range []string{"/proc", "/sys", "/dev", "/tmp", "/run", "/etc", "/mnt"} {
		a.dir(d)
	}
	a.data("/init", 0o755, []byte(c.init))
	a.data("/etc/passwd", 0o644, []byte("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"))
	for _, name := range c.names {
		if err := a.file(name, c.from[name]); err != nil {
			return nil, err
		}
	}
	return a.bytes(), nil
}

// The first process. Its task is the shell script /job, and what a task prints is
// on the first serial port; the kernel's and the agent's messages are on the second.
const initScript = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
exec </dev/null >/dev/ttyS1 2>&1
LOAD MODULES
ip link set lo up
sh /job >/dev/ttyS0 2>&1
echo "job ended: $?" >/dev/ttyS0
sync
poweroff -f
`
