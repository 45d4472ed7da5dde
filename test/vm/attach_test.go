package vm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Definitions as people write them; NAME stands for the machine's name.
const plainDefinition = `<domain type='qemu'>
  <name>NAME</name>
  <memory unit='MiB'>256</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='MACHINE'>hvm</type></os>
  <features><acpi/><apic/></features>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>`

func definition(machine string, changes ...string) string {
	text := strings.Replace(plainDefinition, "MACHINE", machine, 1)
	for i := 0; i < len(changes); i += 2 {
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	return text
}

const (
	oneCell  = "<cpu mode='maximum'><numa><cell id='0' cpus='0' memory='256' unit='MiB'/></numa></cpu></features>"
	aNVDIMM  = "<memory model='nvdimm' access='shared'><source><path>/var/lib/other</path></source><target><size unit='MiB'>64</size><node>0</node></target></memory></devices>"
	aChannel = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices>"
	aDisk    = "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/nonexistent'/><target dev='vda' bus='virtio'/></disk></devices>"
)

var definitions = map[string]string{
	"q35":             definition("q35"),
	"i440fx":          definition("pc"),
	"a versioned q35": definition("pc-q35-7.2"),
	"comments, quotes and units": definition("q35", "<memory unit='MiB'>256</memory>", `<!-- <memory> --><memory   unit="g" >1</memory>
	<currentMemory unit='mb'>300</currentMemory>`, "</domain>", "<!-- the end --></domain>"),
	"vCPUs to come":     definition("q35", "<vcpu>1</vcpu>", "<vcpu placement='static' current='2'>4</vcpu>"),
	"a cpu":             definition("q35", "</features>", "</features><cpu mode='custom' match='exact'><model>qemu64</model><topology sockets='1' cores='1' threads='1'/></cpu>"),
	"a maximal cpu":     definition("q35", "</features>", "</features><cpu mode='maximum'/>"),
	"a cell":            definition("q35", "</features>", "</features>"+strings.TrimSuffix(oneCell, "</features>")),
	"several cells":     definition("q35", "<vcpu>1", "<vcpu>4", "</features>", "</features><cpu><numa><cell id='0' cpus='0-1' memory='128' unit='MiB'/><cell id='1' cpus='2-3' memory='128' unit='MiB'/></numa></cpu>"),
	"a limit with room": definition("q35", "</features>", "</features>"+strings.TrimSuffix(oneCell, "</features>"), "<memory ", "<maxMemory slots='16' unit='GiB'>16</maxMemory><memory "),
	"a limit that is reached": definition("q35", "</features>", "</features>"+strings.TrimSuffix(oneCell, "</features>"), "<memory ", "<maxMemory slots='1' unit='MiB'>512</maxMemory><memory ",
		"</devices>", aNVDIMM),
	"other NVDIMMs": definition("pc", "</features>", "</features>"+strings.TrimSuffix(oneCell, "</features>"), "<memory ", "<maxMemory slots='4' unit='GiB'>4</maxMemory><memory ",
		"</devices>", aNVDIMM, "</devices>", strings.Replace(aNVDIMM, "other", "another", 1)),
	"a channel":    definition("q35", "</devices>", aChannel),
	"many devices": definition("q35", "</devices>", aDisk, "</devices>", "<interface type='user'><model type='virtio'/></interface></devices>", "</devices>", "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng></devices>"),
	"i440fx, busy": definition("pc", "</devices>", aDisk, "</devices>", aChannel),
	"metadata":     definition("q35", "<vcpu>", "<title>t</title><metadata><a:b xmlns:a='http://a/1'><a:c d='e'>text</a:c></a:b></metadata><vcpu>"),
	"a password":   definition("q35", "</devices>", "<graphics type='vnc' passwd='sesame'/></devices>"),
	"UEFI":         definition("q35", "hvm</type>", "hvm</type><loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader><nvram>/var/lib/libvirt/qemu/nvram/x.fd</nvram>"),
	"QEMU's options": definition("q35", "<domain type='qemu'>", "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>",
		"</domain>", "<qemu:commandline><qemu:arg value='-S'/></qemu:commandline></domain>"),
	"huge pages":      definition("q35", "<vcpu>", "<memoryBacking><hugepages/></memoryBacking><vcpu>"),
	"a big one":       definition("q35", "<memory unit='MiB'>256", "<memory unit='GiB'>512", "<vcpu>1", "<vcpu>64"),
	"memory in bytes": definition("q35", "<memory unit='MiB'>256", "<memory unit='b'>268435457"),
}

// Attaching changes any definition of libvirt's once, and detaching restores the
// same bytes.
func TestAttachedDefinitions(t *testing.T) {
	t.Parallel()
	l := startLibvirt(bareHost(t))
	for i, what := range slices.Sorted(maps.Keys(definitions)) {
		t.Run(what, func(t *testing.T) {
			l.h.t = t
			name := fmt.Sprintf("pg-attach-%d", i)
			file := l.h.path(name + ".xml")
			if err := os.WriteFile(file, []byte(strings.Replace(definitions[what], "NAME", name, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			l.run("virsh", "define", file)
			os.WriteFile(file, []byte(l.dump(name)), 0o644)
			l.run("virsh", "define", file) // libvirt reorders some definitions when it reads its own output
			defer l.command("virsh", "undefine", "--keep-nvram", name).Run()
			before := l.dump(name)
			l.attach(name, "is attached", "--credits", "300")
			attached := l.dump(name)
			for _, want := range []string{filepath.Join(l.h.regions, name), "credits=", "65536"} {
				if !strings.Contains(attached, want) {
					t.Errorf("no %q:\n%s", want, attached)
				}
			}
			l.checkAppArmor(name, filepath.Join(l.h.regions, name))
			l.attach(name, "nothing changes")
			if again := l.dump(name); again != attached {
				t.Errorf("attached twice:\n%s\nonce:\n%s", again, attached)
			}
			l.attach(name, "is attached", "--memory", "32MiB", "--credits", "0")
			l.attach(name, "is attached", "--device", "ivshmem")
			shared := l.dump(name)
			if !strings.Contains(shared, "role='master'") || strings.Contains(shared, filepath.Join(l.h.regions, name)+"<") {
				t.Errorf("no PCI device, or an NVDIMM still:\n%s", shared)
			}
			l.checkAppArmor(name, "/dev/shm/"+filepath.Base(l.h.regions)+"-"+name)
			l.run(built(t, "bin/pegasus"), "detach", name, "--regions", l.h.regions)
			if after := l.dump(name); after != before {
				t.Errorf("detached:\n%s\nwas:\n%s\nattached:\n%s", after, before, shared)
			}
		})
	}
	l.h.t = t
}

// bareHost returns a host without a daemon.
func bareHost(t *testing.T) *host {
	regions, err := os.MkdirTemp("/dev/shm", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(regions) })
	return &host{t: t, dir: t.TempDir(), regions: regions}
}

// dump returns libvirt's complete definition of a machine.
func (l *libvirt) dump(name string) string {
	l.h.t.Helper()
	out, err := l.command("virsh", "dumpxml", "--inactive", "--security-info", name).Output()
	if err != nil {
		l.h.t.Fatalf("virsh dumpxml: %v", err)
	}
	return string(out)
}

// attach attaches a machine, and checks the answer for an expected text.
func (l *libvirt) attach(name, want string, args ...string) {
	l.h.t.Helper()
	args = append([]string{built(l.h.t, "bin/pegasus"), "attach", name, "--regions", l.h.regions}, args...)
	if !slices.Contains(args, "--memory") {
		args = append(args, "--memory", "64MiB")
	}
	out, err := l.command(args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		l.h.t.Fatalf("pegasus attach: %v: %s, want %q", err, out, want)
	}
}

// checkAppArmor checks that virt-aa-helper finds the region in the definition: where AppArmor confines QEMU, libvirt
// permits the files that this helper finds.
func (l *libvirt) checkAppArmor(name, region string) {
	l.h.t.Helper()
	helper := l.command("/usr/lib/libvirt/virt-aa-helper", "-d", "-r", "-u", "libvirt-"+uuidIn(l.dump(name)))
	helper.Stdin = strings.NewReader(l.dump(name))
	rules, err := helper.CombinedOutput()
	if err != nil {
		l.h.t.Fatalf("virt-aa-helper: %v: %s", err, rules)
	}
	if want := fmt.Sprintf("%q rw", region); !strings.Contains(string(rules), want) {
		l.h.t.Errorf("AppArmor wouldn't let QEMU open its region; no %s in:\n%s", want, rules)
	}
}

func uuidIn(definition string) string {
	_, rest, _ := strings.Cut(definition, "<uuid>")
	uuid, _, _ := strings.Cut(rest, "</uuid>")
	return uuid
}
