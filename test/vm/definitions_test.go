package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	report "pegasus/hypervisor/libvirt"
)

// refusal matches the first line of a definition that can't be attached: the kinds of device, and the reason.
var refusal = regexp.MustCompile(`^<!-- ([a-z, ]+): refused: (.*) -->\n`)

// unsupported are the definitions that libvirt refuses on some hosts: without swtpm, without cells by default, and with an emulator
// of this architecture only, without microvm and SEV.
var unsupported = []string{"a limit without cells", "virtio-mem without slots", "UEFI with a TPM", "a microvm", "another architecture", "encrypted memory"}

// startEvery is the number of definitions per definition that is also started, which takes seconds; with SOAKTIME all are started.
const startEvery = 4

// Every operator's definition can be attached as both kinds of device, starts if it did before, and is restored to
// the byte by detaching; or it is refused with the reason, and not changed.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	all, err := txtar.ParseFile("../../hypervisor/kvm/testdata/definitions.txtar")
	if err != nil {
		t.Fatal(err)
	}
	const parts = 2 // at a time: they mostly wait for libvirt
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			l := startLibvirt(bareHost(t))
			l.run("mkdir", "-p", "/var/lib/libvirt/qemu/nvram")
			for i, f := range all.Files {
				if i%parts == part {
					t.Run(f.Name, func(t *testing.T) {
						l.h.t = t
						l.checkDefinition(t, fmt.Sprintf("pg-defined-%d", i), f, i/parts%startEvery == 0 || os.Getenv("SOAKTIME") != "")
					})
				}
			}
			l.h.t = t
		})
	}
}

// checkDefinition attaches and detaches a machine of an operator's definition, and with start also starts it.
func (l *libvirt) checkDefinition(t *testing.T, name string, f txtar.File, start bool) {
	file := l.h.path(name + ".xml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(f.Data), "NAME", name)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := l.command("virsh", "define", file).CombinedOutput(); err != nil {
		if !slices.Contains(unsupported, f.Name) {
			t.Fatal(string(out))
		}
		t.Logf("libvirt refuses it itself: %s", out)
		return
	}
	defer l.command("virsh", "undefine", "--nvram", name).Run()
	os.WriteFile(file, []byte(l.dump(name)), 0o644)
	l.run("virsh", "define", file) // libvirt reorders some definitions when it reads its own output
	before := l.dump(name)
	starts := start && l.starts(name) == nil
	for _, device := range []string{"nvdimm", "ivshmem"} {
		refused := refusal.FindSubmatch(f.Data)
		args := []string{built(t, "bin/pegasus"), "attach", name, "--regions", l.h.regions, "--memory", "64MiB", "--credits", "77", "--device", device}
		out, err := l.command(args...).CombinedOutput()
		if refused != nil && strings.Contains(string(refused[1]), device) {
			if err == nil || !strings.Contains(string(out), string(refused[2])) {
				t.Errorf("%s: %v: %s, want %s", device, err, out, refused[2])
			}
		} else if err != nil {
			t.Errorf("%s: %v: %s", device, err, out)
		} else {
			l.attach(name, "nothing changes", "--device", device)
			if starts {
				if err := l.starts(name); err != nil {
					t.Errorf("%s: it doesn't start any more: %v\n%s", device, err, l.dump(name))
				}
			}
			l.run(built(t, "bin/pegasus"), "detach", name, "--regions", l.h.regions)
		}
		if after := l.dump(name); after != before {
			t.Errorf("%s: detached:\n%s\nwas:\n%s", device, after, before)
		}
	}
	t.Logf("it starts: %v", starts)
}

// starts starts a machine and ends it.
func (l *libvirt) starts(name string) error {
	out, err := l.command("virsh", "start", "--paused", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	l.run("virsh", "destroy", name)
	return nil
}

// An attached machine keeps all its slots and addresses for memory: as much memory can be plugged into it while it runs.
func TestOwnSlots(t *testing.T) {
	t.Parallel()
	l := startLibvirt(bareHost(t))
	const name = "pg-slots"
	file, module := l.h.path("slots.xml"), l.h.path("dimm.xml")
	text := strings.Replace(definition("q35", "</features>", "</features>"+strings.TrimSuffix(oneCell, "</features>"),
		"<memory ", "<maxMemory slots='2' unit='MiB'>768</maxMemory><memory "), "NAME", name, 1)
	for path, text := range map[string]string{
		file: text, module: "<memory model='dimm'><target><size unit='MiB'>256</size><node>0</node></target></memory>",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l.run("virsh", "define", file)
	defer l.command("virsh", "undefine", name).Run()
	for _, device := range []string{"", "nvdimm", "ivshmem"} {
		if device != "" {
			l.attach(name, "is attached", "--device", device)
		}
		l.run("virsh", "start", name)
		for range 2 {
			l.run("virsh", "attach-device", name, module, "--live")
		}
		l.run("virsh", "destroy", name)
	}
}

// Memory that was edited beside the NUMA cell, which libvirt drops, is a finding as far as the definition shows it.
func TestMemoryBesideCell(t *testing.T) {
	t.Parallel()
	l := startLibvirt(bareHost(t))
	const name = "pg-memory"
	file := l.h.path("memory.xml")
	define := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		l.run("virsh", "define", file)
	}
	listed := func() (m report.Listed) {
		t.Helper()
		out, err := l.command(built(t, "bin/pegasus-libvirt"), "list", "--regions", l.h.regions).Output()
		var all []report.Listed
		if err == nil {
			err = json.Unmarshal(out, &all)
		}
		if err != nil || len(all) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		return all[0]
	}
	define(strings.Replace(definition("q35"), "NAME", name, 1))
	defer l.command("virsh", "undefine", name).Run()
	l.attach(name, "is attached")
	if m := listed(); m.Memory != 0 || m.Counted != 0 {
		t.Errorf("attached: %+v", m)
	}
	text := l.dump(name)
	define(strings.NewReplacer("327680</memory>", "1048576</memory>", "262144</currentMemory>", "1048576</currentMemory>").Replace(text))
	if m := listed(); m.Memory < 320<<20 || m.Counted != 256<<20 {
		t.Errorf("edited: %+v\n%s", m, l.dump(name))
	}
	define(text)
	define(strings.NewReplacer("327680</memory>", "589824</memory>", "memory='262144'", "memory='524288'", "262144</currentMemory>", "524288</currentMemory>").Replace(text))
	if m := listed(); m.Memory != 0 || m.Counted != 0 {
		t.Errorf("edited with its cell: %+v\n%s", m, l.dump(name))
	}
}
