// Package xen boots a real Xen for tests: Debian's hypervisor, tool stack and kernel, its
// Dom0 and domUs in memory, all in QEMU without a hypervisor's help.
package xen

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pegasus/test/image"
)

// Release is the release of Xen in a release of Debian.
type Release struct {
	Xen   string
	suite string   // the release of Debian; "": this machine's
	more  []string // further packages of that release, since this machine's are too old
}

// The releases that machines can have.
var (
	Bookworm = Release{Xen: "4.17"}
	Trixie   = Release{Xen: "4.20", suite: "trixie", more: []string{"libc6", "libgcc-s1", "zlib1g", "libzstd1", "liblzma5", "libbz2-1.0", "liblzo2-2", "libuuid1", "libnl-3-200", "libnl-route-3-200", "libsystemd0", "libcap2"}}
)

// Image is the set of files that a machine with Xen boots.
type Image struct {
	Xen    string // the hypervisor
	Kernel string // Dom0's
	Initrd string // its initial file system: the tool stack, Pegasus's programs, and domUs' boot files
}

func (r Release) packages() []string {
	return append([]string{
		"xen-hypervisor-" + r.Xen + "-amd64", "xen-utils-" + r.Xen, "libxenmisc" + r.Xen, "xenstore-utils",
		"libxenstore4", "libxencall1", "libxendevicemodel1", "libxenevtchn1", "libxenforeignmemory1", "libxengnttab1",
		"libxenhypfs1", "libxentoolcore1", "libxentoollog1", "libyajl2",
	}, r.more...)
}

// unpack downloads and unpacks the packages, unless root has them.
func (r Release) unpack(root string) error {
	if r.suite == "" {
		return image.Unpack(root, r.packages()...)
	}
	return image.UnpackOf(r.suite, root, r.packages()...)
}

// The kernel modules that Dom0 and domUs need.
var (
	dom0Modules = []string{"xen_evtchn", "xen_gntdev", "xen_gntalloc", "xen_privcmd", "xenfs"}
	domUModules = []string{"xen_evtchn", "xen_gntdev", "xen_gntalloc"}
)

// programs are the benchmarks that domUs run.
var programs = []string{"vectoradd", "blackscholes", "reduction", "busy"}

// Build makes the image from the files in build, the directory that `make build`
// fills, or returns the image that was made from the same files before.
func Build(build string, r Release) (*Image, error) {
	dir := filepath.Join(build, "vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "xen-"+r.Xen)
	if err := r.unpack(root); err != nil {
		return nil, err
	}
	k, err := image.FindKernel(dir, "linux-image-amd64")
	if err != nil {
		return nil, err
	}
	img := &Image{Xen: filepath.Join(root, "xen"), Kernel: filepath.Join(root, "vmlinux.gz")}
	vmlinux := filepath.Join(root, "vmlinux")
	if err := k.Vmlinux(vmlinux); err != nil {
		return nil, err
	}
	if err := derive(img.Kernel, vmlinux, pack); err != nil {
		return nil, err
	}
	if err := derive(img.Xen, filepath.Join(root, "boot/xen-"+r.Xen+"-amd64.gz"), unpack); err != nil {
		return nil, err
	}
	tries, err := program(build, "probe", "pegasus/test/xen/probe")
	if err != nil {
		return nil, err
	}
	agrees, err := program(build, "xenstore-conformance", "pegasus/xenstore/xenstoretest/cmd")
	if err != nil {
		return nil, err
	}
	foe, err := program(build, "foe", "pegasus/test/xen/foe")
	if err != nil {
		return nil, err
	}
	witness, err := image.Witness(build)
	if err != nil {
		return nil, err
	}
	domU, err := domU(build, witness, k)
	if err != nil {
		return nil, err
	}
	dom0, err := dom0(build, root, r, k)
	if err != nil {
		return nil, err
	}
	domU.Add("/bin/foe", foe)
	dom0.Add("/domu/vmlinux", vmlinux)
	for _, c := range []*image.Contents{dom0, domU} {
		c.Add("/bin/probe", tries)
		c.Add("/bin/xenstore-conformance", agrees)
	}
	img.Initrd = filepath.Join(dir, "xen-"+r.Xen+"-"+dom0.Sum()+domU.Sum()+".cpio")
	return img, derive(img.Initrd, "", func(w io.Writer, _ io.Reader) error {
		inner, err := domU.Archive("/proc", "/sys", "/dev", "/tmp", "/run", "/etc")
		if err != nil {
			return err
		}
		dom0.Texts["/domu/initrd"] = string(inner)
		outer, err := dom0.Archive("/proc", "/sys", "/dev", "/tmp", "/run", "/etc/xen", "/var/log/xen/console", "/var/lib/xen")
		if err != nil {
			return err
		}
		if err := image.RemoveAll(filepath.Join(dir, "xen-"+r.Xen+"-*.cpio")); err != nil {
			return err
		}
		_, err = w.Write(outer)
		return err
	})
}

// derive makes a file from another, unless it exists.
func derive(path, from string, make func(io.Writer, io.Reader) error) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	var in io.Reader
	if from != "" {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	var b bytes.Buffer
	if err := make(&b, in); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	making := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(making, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(making, path)
}

func unpack(w io.Writer, r io.Reader) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, z)
	return err
}

// pack compresses at the fastest level, because Xen decompresses with an emulated processor.
func pack(w io.Writer, r io.Reader) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, r); err != nil {
		return err
	}
	return z.Close()
}

// dom0 returns the contents of Dom0's file system: the tool stack and Pegasus's host side.
func dom0(build, root string, r Release, k *image.Kernel) (*image.Contents, error) {
	c := image.NewContents()
	c.Dirs = []string{filepath.Join(root, "usr/lib/x86_64-linux-gnu")}
	c.Add("/bin/busybox", "/bin/busybox")
	for _, name := range []string{"xl", "xenstored", "xenconsoled", "xen-init-dom0"} {
		c.Add("/bin/"+name, filepath.Join(root, "usr/lib/xen-"+r.Xen+"/bin", name))
	}
	helper := "/usr/lib/xen-" + r.Xen + "/bin/libxl-save-helper" // where libxl looks for it
	c.Add(helper, filepath.Join(root, helper))
	for _, name := range []string{"xenstore-ls", "xenstore-read", "xenstore-write"} {
		c.Add("/bin/"+name, filepath.Join(root, "usr/bin", name))
	}
	for _, name := range []string{"pegasusd", "pegasus"} {
		c.Add("/bin/"+name, filepath.Join(build, "bin", name))
	}
	if err := c.AddNeeds(); err != nil {
		return nil, err
	}
	const atExit = "libgcc_s.so.1" // glibc loads it to end a thread
	c.Add("/lib/x86_64-linux-gnu/"+atExit, "/lib/x86_64-linux-gnu/"+atExit)
	c.Texts["/etc/xen/xl.conf"] = ""
	return c, addInit(c, k, dom0Init, dom0Modules)
}

// domU returns the contents of a domU's file system: Pegasus's guest side, and programs.
func domU(build, witness string, k *image.Kernel) (*image.Contents, error) {
	c := image.NewContents()
	c.Add("/bin/busybox", "/bin/busybox")
	c.Add("/bin/pegasus-guest", filepath.Join(build, "bin/pegasus-guest"))
	c.Add("/sbin/ldconfig", "/sbin/ldconfig")
	c.Add("/bin/witness", witness)
	for _, p := range programs {
		c.Add("/bench/"+p, filepath.Join(build, "bench", p))
	}
	if err := c.AddNeeds(); err != nil {
		return nil, err
	}
	c.Texts["/etc/ld.so.conf"] = "include /etc/ld.so.conf.d/*.conf\n"
	return c, addInit(c, k, domUInit, domUModules)
}

// program builds a test program that runs inside a domain.
func program(build, name, pkg string) (string, error) {
	path := filepath.Join(build, "vm", name)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return path, nil
}

func addInit(c *image.Contents, k *image.Kernel, init string, modules []string) error {
	paths, err := k.InOrder(modules...)
	if err != nil {
		return err
	}
	var load strings.Builder
	for _, m := range paths {
		name := "/modules/" + filepath.Base(m)
		c.Add(name, m)
		fmt.Fprintln(&load, "insmod", name)
	}
	c.Texts["/init"] = strings.Replace(init, "LOAD MODULES\n", load.String(), 1)
	return nil
}

const begin = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /var
ln -sfn /run /var/run
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
LOAD MODULES
ip link set lo up
`

// dom0Init starts the tool stack, and then executes commands from the second serial port.
const dom0Init = begin + `
exec </dev/null >/dev/hvc0 2>&1
mount -t xenfs xenfs /proc/xen
mkdir -p /run/xenstored /run/xen
xenstored --pid-file /run/xenstored.pid
n=0
while [ ! -S /run/xenstored/socket ]; do sleep 0.1; n=$((n+1)); [ $n -lt 300 ] || break; done
xen-init-dom0
xenconsoled --log=all --pid-file=/run/xenconsoled.pid
stty -F /dev/ttyS1 115200 raw -echo
sh </dev/ttyS1 2>&1 | cat >/dev/ttyS1 # whose output is no terminal doesn't prompt
`

// domUInit runs the domU's job, which is appended to its file system, and prints the job's status on the console.
const domUInit = begin + `
exec </dev/null >/dev/hvc0 2>&1
sh /job
echo "job ended: $?"
poweroff -f
`
