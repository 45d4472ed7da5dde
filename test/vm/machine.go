// Package vm boots virtual machines for tests: Debian's kernel, a file system in
// memory, QEMU without a hypervisor's help, so that they run anywhere.
//
// A machine's one virtual processor is emulated on one core, so tests of one machine
// run in parallel. Tests that measure shares or times have the host for themselves.
package vm

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"pegasus/callbuf/bell"
	"pegasus/test/image"
)

// Machine describes a virtual machine to boot.
type Machine struct {
	Image   *Image
	Kind    Variant
	Dir     string            // for its files
	Region  string            // a file that is its NVDIMM; empty: none
	Shared  bool              // the region is a PCI device instead, ivshmem-plain
	Port    string            // QEMU's socket for the port by which agent and hub wake each other; empty: none
	NoPort  bool              // it has no such port
	Echo    string            // QEMU's socket for another port; empty: none
	Disk    string            // a squashfs that it mounts at /mnt; empty: none
	Job     string            // a shell script that it runs before it switches itself off
	Files   map[string]string // of the host, by their names in the machine, beside the image's
	Monitor bool              // QEMU has a monitor
	Reboot  bool              // a reboot restarts it, instead of ending it
}

// Running is a started machine.
type Running struct {
	cmd *exec.Cmd
	dir string
}

// Start boots a machine. The job's output is in Output, that of kernel and agent
// in Messages.
func (m Machine) Start() (*Running, error) {
	initrd, err := m.Initrd()
	if err != nil {
		return nil, err
	}
	r := &Running{dir: m.Dir}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-cpu", "max",
		"-kernel", m.Image.Kernel, "-initrd", initrd, "-append", "console=ttyS1 quiet panic=-1",
		"-serial", "file:" + r.path("output"), "-serial", "file:" + r.path("messages"),
	}
	if m.Monitor {
		args = append(args, "-qmp", "unix:"+r.path("monitor")+",server=on,wait=off")
	}
	if !m.Reboot {
		args = append(args, "-no-reboot")
	}
	args = append(args, m.Kind.firmware()...)
	if m.Disk != "" {
		args = append(args, "-drive", "if=virtio,format=raw,readonly=on,file="+m.Disk)
	}
	machine := m.Kind.machine()
	memory := "256M"
	if m.Region != "" {
		st, err := os.Stat(m.Region)
		if err != nil {
			return nil, err
		}
		args = append(args, "-object", fmt.Sprintf("memory-backend-file,id=region,share=on,mem-path=%s,size=%d", m.Region, st.Size()))
		if m.Shared {
			args = append(args, "-device", "ivshmem-plain,id=shared,memdev=region,master=on")
		} else {
			machine += ",nvdimm=on"
			memory += ",slots=2,maxmem=8G"
			args = append(args, "-device", "nvdimm,id=nvdimm0,memdev=region")
		}
	}
	if m.Port != "" || m.Echo != "" {
		args = append(args, "-device", "virtio-serial-pci")
	}
	args = append(args, serialPort("port", m.Port, bell.Name)...)
	args = append(args, serialPort("echo", m.Echo, "echo")...)
	args = append(args, "-machine", machine, "-m", memory)
	r.cmd = exec.Command("qemu-system-x86_64", args...)
	said, err := os.Create(r.path("qemu"))
	if err != nil {
		return nil, err
	}
	defer said.Close()
	r.cmd.Stdout, r.cmd.Stderr = said, said
	return r, r.cmd.Start()
}

// serialPort returns QEMU's arguments for a port of the machine, none without a socket.
func serialPort(id, socket, name string) []string {
	if socket == "" {
		return nil
	}
	return []string{"-chardev", "socket,id=" + id + ",server=on,wait=off,path=" + socket, "-device", "virtserialport,chardev=" + id + ",name=" + name}
}

// Initrd writes the image, with the job and the files behind it, and returns its path.
func (m Machine) Initrd() (path string, err error) {
	path = filepath.Join(m.Dir, "initrd")
	return path, m.writeInitrd(path)
}

func (m Machine) writeInitrd(path string) error {
	base, err := os.Open(m.Image.base)
	if err != nil {
		return err
	}
	defer base.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var job image.Archive
	job.Data("/job", 0o755, []byte(m.Job))
	for name, from := range m.Files {
		if err := job.File(name, from); err != nil {
			return err
		}
	}
	_, err = io.Copy(f, io.MultiReader(base, bytes.NewReader(job.Bytes())))
	return err
}

func (r *Running) path(name string) string { return filepath.Join(r.dir, name) }

// Output returns the job's output so far.
func (r *Running) Output() string { return r.read("output") }

// Messages returns the output of QEMU, of the kernel and of the agent.
func (r *Running) Messages() string { return r.read("qemu") + r.read("messages") }

func (r *Running) read(name string) string {
	text, _ := os.ReadFile(r.path(name))
	return string(bytes.ReplaceAll(text, []byte("\r"), nil))
}

// Wait blocks until the machine has switched itself off.
func (r *Running) Wait() error { return r.cmd.Wait() }

// Kill cuts the machine's power.
func (r *Running) Kill() { r.cmd.Process.Kill() }

// PID returns QEMU's process ID.
func (r *Running) PID() int { return r.cmd.Process.Pid }

// Definition returns the machine's libvirt definition, without its region, which
// attaching adds.
func (m Machine) Definition(name string) (string, error) {
	initrd, err := m.Initrd()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`<domain type='qemu'>
  <name>%[1]s</name>
  <memory unit='MiB'>256</memory>
  <vcpu placement='static'>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>%[2]s</kernel>
    <initrd>%[3]s</initrd>
    <cmdline>console=ttyS1 quiet panic=-1</cmdline>
  </os>
  <features><acpi/><apic/></features>
  <cpu mode='maximum'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <serial type='file'><source path='%[4]s/output' append='on'/><target port='0'/></serial>
    <serial type='file'><source path='%[4]s/messages' append='on'/><target port='1'/></serial>
  </devices>
</domain>
`, name, m.Image.Kernel, initrd, m.Dir), nil
}
