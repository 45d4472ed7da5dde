package vm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Image is what a guest boots: a kernel, and a file system in memory with the
// agent, the benchmark programs and what these need of the host.
type Image struct {
	Kernel string
	base   string // an archive, kept between runs
}

// benchmarks are the programs that guests run.
var benchmarks = []string{"vectoradd", "blackscholes", "reduction", "busy", "srad", "calls"}

// Build makes the image, with a kernel of Debian's, of what is in build, which is the
// directory that `make build` fills, or finds the one that was made of the same files before.
func Build(build, kernelPackage string) (*Image, error) {
	dir := filepath.Join(build, "vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	k, err := findKernel(dir, kernelPackage)
	if err != nil {
		return nil, err
	}
	contents, err := collect(build, k)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(dir, kernelPackage+"-"+contents.sum()+".cpio")
	if _, err := os.Stat(base); err == nil {
		return &Image{k.image, base}, nil
	}
	if err := removeAll(filepath.Join(dir, kernelPackage+"-*.cpio")); err != nil {
		return nil, err
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

// collect lists what an image needs, and says what of it is missing.
func collect(build string, k *kernel) (*contents, error) {
	c := newContents()
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
	c.texts["/etc/ld.so.conf"] = "include /etc/ld.so.conf.d/*.conf\n"
	c.texts["/etc/passwd"] = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
	c.texts["/init"] = strings.Replace(initScript, "LOAD MODULES\n", load.String(), 1)
	c.add("/bin/pegasus-guest", filepath.Join(build, "bin/pegasus-guest"))
	c.add("/sbin/mkfs.ext4", "/sbin/mkfs.ext4")
	c.add("/sbin/ldconfig", "/sbin/ldconfig")
	for _, b := range benchmarks {
		c.add("/bench/"+b, filepath.Join(build, "bench", b))
	}
	return c, c.addNeeds()
}

func (c *contents) archive() ([]byte, error) {
	var a archive
	for _, d := range []string{"/proc", "/sys", "/dev", "/tmp", "/run", "/etc", "/mnt"} {
		a.dir(d)
	}
	for _, name := range slices.Sorted(maps.Keys(c.texts)) {
		a.data(name, 0o755, []byte(c.texts[name]))
	}
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
[ ! -b /dev/vda ] || mount -t squashfs -o ro /dev/vda /mnt
ip link set lo up
[ ! -x /mnt/init ] || exec /mnt/init
sh /job >/dev/ttyS0 2>&1
echo "job ended: $?" >/dev/ttyS0
sync
poweroff -f
`
