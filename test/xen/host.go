package xen

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bootTime bounds the boot of Dom0, commandTime one of its commands, and jobTime a step of a domU's job
// after the domU's start. The bounds are for an emulated machine on a slow and busy host.
const (
	bootTime    = 10 * time.Minute
	commandTime = 5 * time.Minute
	jobTime     = 5 * time.Minute
)

// Host is a machine with Xen. Its Dom0 executes the test's commands.
type Host struct {
	t       testing.TB
	dir     string
	qemu    *exec.Cmd
	line    net.Conn // to Dom0's shell
	says    *bufio.Reader
	command *int
	options string // Xen's
}

// options are Xen's. Without eager-fpu, QEMU's emulation of AVX lets vCPUs get others' registers.
const options = "console=com1 dom0_mem=768M,max:768M noreboot sched=credit spec-ctrl=eager-fpu conring_size=128k"

// Start boots a machine, with more options of Xen's, and waits for its Dom0.
func Start(t testing.TB, more ...string) *Host {
	t.Helper()
	return StartRelease(t, Bookworm, more...)
}

// StartRelease is Start for a release of Xen.
func StartRelease(t testing.TB, r Release, more ...string) *Host {
	t.Helper()
	build := os.Getenv("PEGASUS_BUILD")
	if build == "" {
		build = "../../build"
	}
	img, err := Build(build, r)
	if err != nil {
		t.Fatalf("%v; `make build` and `make deps` bring what is missing", err)
	}
	dir, err := os.MkdirTemp("", "pgxen")
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{t: t, dir: dir, command: new(int), options: strings.Join(append([]string{options}, more...), " ")}
	t.Cleanup(h.stop)
	h.boot(img)
	return h
}

// of is the same machine, for a test within the one that started it.
func (h *Host) of(t testing.TB) *Host {
	part := *h
	part.t = t
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := part.Try("xl list; tail -n 40 /var/log/xen/console/*; xenstore-ls | tail -n 50")
			t.Logf("Dom0 knows:\n%s", out)
		}
	})
	return &part
}

// greeting is sent to Dom0's shell until the shell answers. Input that arrives before the shell starts is lost, and the loss can end
// anywhere in a greeting. So no part of a greeting opens a construct of the shell, such as the first of two quotes.
const (
	greeting = "\necho dom0-is\\-there\n"
	greeted  = "dom0-is-there"
)

const nobody = 65534

// openForAll opens a file so that a process that inherits the descriptor can open it again through /proc/self/fd. The kernel
// checks the file's mode again at that open, and root's umask may have made the file readable to root alone.
func openForAll(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err == nil && os.Getuid() == 0 {
		err = f.Chmod(0o644)
	}
	return f, err
}

// newLine is a line with two ends, of which one is to be passed on.
func newLine() (ours net.Conn, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "our end")
	defer f.Close()
	ours, err = net.FileConn(f)
	return ours, os.NewFile(uintptr(fds[1]), "their end"), err
}

func (h *Host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *Host) boot(img *Image) {
	h.t.Helper()
	began := time.Now()
	// All files are opened here because the emulator's user can't reach files below another user's
	// home. The emulator inherits them behind its standard files.
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, path := range []string{img.Xen, img.Kernel, img.Initrd} {
		f, err := openForAll(path)
		if err != nil {
			h.t.Fatal(err)
		}
		files = append(files, f)
	}
	line, theirs, err := newLine()
	if err != nil {
		h.t.Fatal(err)
	}
	h.line, files = line, append(files, theirs)
	console, err := os.Create(h.path("console"))
	if err != nil {
		h.t.Fatal(err)
	}
	files = append(files, console)
	const xen, kernel, initrd, shell, prints = "/proc/self/fd/3", "/proc/self/fd/4", "/proc/self/fd/5", "6", "/proc/self/fd/7"
	h.qemu = exec.Command("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35,accel=tcg", "-cpu", "max,-smap,-smep,-rdtscp", "-smp", "2", "-m", "1536",
		"-serial", "file:"+prints, "-chardev", "socket,id=shell,fd="+shell, "-serial", "chardev:shell",
		"-kernel", xen, "-append", h.options,
		"-initrd", kernel+" console=hvc0 quiet mitigations=off rootfstype=ramfs,"+initrd)
	h.qemu.ExtraFiles = files
	said, err := os.Create(h.path("qemu"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer said.Close()
	h.qemu.Stdout, h.qemu.Stderr = said, said
	h.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is killed leaves no machine
	if os.Getuid() == 0 {                                                 // the emulator has no rights, since guests control it
		if err := console.Chown(nobody, nobody); err != nil {
			h.t.Fatal(err)
		}
		h.qemu.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if err := h.qemu.Start(); err != nil {
		h.t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	theirs.Close() // so that the line ends with the emulator
	h.says = bufio.NewReader(h.line)
	for end := began.Add(bootTime); ; {
		fmt.Fprint(h.line, greeting)
		h.line.SetReadDeadline(time.Now().Add(time.Second))
		text, err := h.says.ReadString('\n')
		if err == nil && strings.TrimSpace(text) == greeted {
			break
		}
		if err == io.EOF {
			h.t.Fatal("the emulator has ended")
		}
		if time.Now().After(end) {
			h.t.Fatalf("Dom0 isn't there after %v (%v)", bootTime, err)
		}
	}
	h.t.Logf("Dom0 is there after %v", time.Since(began).Round(100*time.Millisecond))
}

func (h *Host) stop() {
	if h.qemu != nil && h.qemu.Process != nil {
		h.qemu.Process.Kill()
		h.qemu.Wait()
	}
	if h.line != nil {
		h.line.Close()
	}
	if h.t.Failed() {
		for _, name := range []string{"qemu", "console"} {
			text, _ := os.ReadFile(h.path(name))
			h.t.Logf("%s:\n%s", name, text)
		}
	}
	os.RemoveAll(h.dir)
}

// Try has Dom0 run a shell command, and returns its output and its status.
func (h *Host) Try(command string) (out string, status int) {
	h.t.Helper()
	*h.command++
	mark := fmt.Sprintf("command-%d-ended", *h.command)
	if _, err := fmt.Fprintf(h.line, "%s\nstatus=$?; echo; echo %s $status\n", command, mark); err != nil {
		h.t.Fatal(err)
	}
	h.line.SetReadDeadline(time.Now().Add(commandTime))
	var b strings.Builder
	for {
		line, err := h.says.ReadString('\n')
		if err != nil {
			if err == io.EOF {
				err = fmt.Errorf("the machine is off")
			}
			h.t.Fatalf("%s: %v\n%s", command, err, b.String())
		}
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, mark); ok {
			status, _ = strconv.Atoi(strings.TrimSpace(rest))
			return strings.TrimRight(b.String(), "\n"), status
		}
		b.WriteString(line + "\n")
	}
}

// Run has Dom0 run a command that has to succeed.
func (h *Host) Run(command string) string {
	h.t.Helper()
	out, status := h.Try(command)
	if status != 0 {
		h.t.Fatalf("%s: status %d\n%s", command, status, out)
	}
	return out
}

// Write makes a file in Dom0.
func (h *Host) Write(path, text string) {
	h.t.Helper()
	h.Run(fmt.Sprintf("cat >%s <<'END OF FILE'\n%s\nEND OF FILE", path, strings.TrimSuffix(text, "\n")))
}

// Create starts a domU, which does a job: a shell script.
func (h *Host) Create(name, job string, more ...string) {
	h.t.Helper()
	dir := "/tmp/" + name
	h.Run("mkdir -p " + dir)
	h.Write(dir+"/job", job)
	h.Run(fmt.Sprintf("(cat /domu/initrd; cd %s && echo job | cpio -o -H newc 2>/dev/null) >%[1]s/initrd", dir))
	h.Write(dir+"/config", fmt.Sprintf(`name="%s"
type="pv"
kernel="/domu/vmlinux"
ramdisk="%s/initrd"
extra="console=hvc0 quiet mitigations=off"
memory=160
vcpus=1
on_poweroff="destroy"
on_crash="destroy"
%s`, name, dir, strings.Join(more, "\n")))
	h.Run("xl create -q " + dir + "/config")
}

// Console is what a domU has printed.
func (h *Host) Console(name string) string {
	h.t.Helper()
	out, _ := h.Try("cat /var/log/xen/console/guest-" + name + ".log")
	return strings.ReplaceAll(out, "\r", "")
}

// Said returns the number of lines of that output that contain a text: much less to send by a serial port.
func (h *Host) Said(name, what string) int {
	h.t.Helper()
	out, _ := h.Try("cat /var/log/xen/console/guest-" + name + ".log | grep -c -F '" + what + "'")
	n, _ := strconv.Atoi(strings.TrimSpace(out))
	return n
}

// Await waits until something is so.
func (h *Host) Await(d time.Duration, what string, ok func() bool) {
	h.t.Helper()
	began := time.Now()
	for ; !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Since(began) > d {
			h.t.Fatalf("not within %v: %s", d, what)
		}
	}
	if took := time.Since(began); took > time.Second {
		h.t.Logf("%s after %.0f s", what, took.Seconds())
	}
}
