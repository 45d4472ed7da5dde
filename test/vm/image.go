package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"pegasus/test/image"
)

// Image is the boot image of a guest: a kernel, and a file system in memory with the
// agent, the benchmark programs and the host's files that these need.
type Image struct {
	Kernel string
	base   string // an archive, kept between runs
}

// wantedModules are the kernel modules that a guest needs, besides their dependencies.
var wantedModules = []string{"virtio_pci", "virtio_console", "virtio_blk", "squashfs", "nfit", "nd_pmem", "crc32c_generic", "ext4", "button", "evdev"}

// benchmarks are the programs that guests run.
var benchmarks = []string{"vectoradd", "blackscholes", "reduction", "busy", "srad", "calls", "first"}

// building is held while a file in the build directory is searched or made: tests run in parallel.
var building sync.Mutex

// Build makes the image, with a kernel of Debian's, from the files in build, the
// directory that `make build` fills, or returns the image that was made from the same files before.
func Build(build, kernelPackage string) (*Image, error) {
	building.Lock()
	defer building.Unlock()
	dir := filepath.Join(build, "vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	k, err := image.FindKernel(dir, kernelPackage)
	if err != nil {
		return nil, err
	}
	contents, err := collect(build, k)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(dir, kernelPackage+"-"+contents.Sum()+".cpio")
	if _, err := os.Stat(base); err == nil {
		return &Image{k.Image, base}, nil
	}
	if err := image.RemoveAll(filepath.Join(dir, kernelPackage+"-*.cpio")); err != nil {
		return nil, err
	}
	data, err := contents.Archive("/proc", "/sys", "/dev", "/tmp", "/run", "/etc", "/mnt")
	if err != nil {
		return nil, err
	}
	making := fmt.Sprintf("%s.%d", base, os.Getpid())
	if err := os.WriteFile(making, data, 0o644); err != nil {
		return nil, err
	}
	return &Image{k.Image, base}, os.Rename(making, base)
}

// collect lists the files of an image. It returns an error if one of them is missing.
func collect(build string, k *image.Kernel) (*image.Contents, error) {
	c := image.NewContents()
	c.Add("/bin/busybox", "/bin/busybox")
	modules, err := k.InOrder(wantedModules...)
	if err != nil {
		return nil, err
	}
	var load strings.Builder
	for _, m := range modules {
		name := "/modules/" + filepath.Base(m)
		c.Add(name, m)
		fmt.Fprintln(&load, "insmod", name)
	}
	c.Texts["/etc/ld.so.conf"] = "include /etc/ld.so.conf.d/*.conf\n"
	c.Texts["/etc/passwd"] = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
	c.Texts["/init"] = strings.Replace(initScript, "LOAD MODULES\n", load.String(), 1)
	c.Add("/bin/pegasus-guest", filepath.Join(build, "bin/pegasus-guest"))
	c.Add("/sbin/mkfs.ext4", "/sbin/mkfs.ext4")
	c.Add("/sbin/ldconfig", "/sbin/ldconfig")
	for _, b := range benchmarks {
		c.Add("/bench/"+b, filepath.Join(build, "bench", b))
	}
	return c, c.AddNeeds()
}

// initScript is the first process. It runs the shell script /job. The script's output is on the
// first serial port; the kernel's and the agent's messages are on the second.
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
