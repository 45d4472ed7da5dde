package kvm

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

const bare = `<domain type='kvm'>
  <name>web</name>
  <memory unit='KiB'>262144</memory>
  <vcpu placement='static'>2</vcpu>
  <features><acpi/></features>
  <!-- <devices> in a comment -->
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
  </devices>
</domain>
`

const (
	dir   = "/dev/shm/pegasus"
	mib64 = 64 << 20
)

func parse(t *testing.T, text string) *Definition {
	t.Helper()
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return d
}

func attach(t *testing.T, text string, a Attachment) string {
	t.Helper()
	out, err := parse(t, text).WithRegion(a)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return string(out)
}

func detach(t *testing.T, text string) string {
	t.Helper()
	out, err := parse(t, text).WithoutRegion(dir)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return string(out)
}

var (
	web    = Attachment{Region: dir + "/web", Bytes: mib64, Device: NVDIMM}
	shared = Attachment{Region: dir + "/web", Bytes: mib64, Device: IVSHMEM}
)

// with returns bare with a text before its devices.
func with(text string) string {
	return strings.Replace(bare, "<devices>\n", text+"\n  <devices>\n", 1)
}

// written are definitions as users write them.
var written = map[string]string{
	"nothing there":      bare,
	"a cpu":              with("<cpu mode='custom'>\n    <model>qemu64</model>\n  </cpu>"),
	"an empty cpu":       with("<cpu mode='host-model' />"),
	"a comment in a cpu": with("<cpu><!-- none --></cpu>"),
	"cells":              with("<cpu><numa><cell id='0' cpus='0' memory='128' unit='MiB'/><cell id='1' cpus='1' memory='128' unit='MiB'/></numa></cpu>"),
	"metadata":           with("<metadata><l:os xmlns:l='x'/></metadata>"),
	"empty metadata":     with("<metadata/>"),
	"double quotes":      strings.ReplaceAll(bare, "'", `"`),
	"one line":           `<domain type='qemu'><name>web</name><memory>262144</memory><features><acpi/></features><devices/></domain>`,
	"odd units":          strings.Replace(bare, "unit='KiB'>262144", "unit='gib'>1", 1),
	"more vCPUs later":   strings.Replace(bare, "placement='static'>2", "current='1'>4", 1),
	"carriage returns":   strings.ReplaceAll(bare, "\n", "\r\n"),
	"a controller":       strings.Replace(bare, "</emulator>", "</emulator>\n    <controller type='virtio-serial' index='0'/>", 1),
	"a limit":            strings.Replace(bare, "<memory ", "<maxMemory slots='3' unit='GiB'>8</maxMemory><memory ", 1),
	"all slots":          strings.Replace(bare, "<memory ", "<maxMemory slots='256' unit='GiB'>8</maxMemory><memory ", 1),
	"an alias like ours": strings.Replace(bare, "</emulator>", "</emulator>\n    <watchdog model='itco'><alias name='ua-pegasusfan'/></watchdog>", 1),
	"a low limit":        strings.Replace(bare, "<memory ", "<maxMemory slots='3' unit='MiB'>300</maxMemory><memory ", 1),
	"full slots": strings.Replace(strings.Replace(with("<cpu><numa><cell id='0' cpus='0-1' memory='256' unit='MiB'/></numa></cpu>"),
		"<memory ", "<maxMemory slots='1' unit='GiB'>8</maxMemory><memory ", 1), "</emulator>", `</emulator>
    <memory model='nvdimm'><source><path>/var/lib/disk</path></source><target><size unit='MiB'>64</size></target></memory>`, 1),
}

// For any definition, attaching adds a region, attaching again changes nothing, and detaching restores the text, to
// the byte.
func TestAttachAndDetach(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(written)) {
		text := written[name]
		for _, a := range []Attachment{web, {web.Region, 128 << 20, 512, NVDIMM, false}, shared, {web.Region, 64 << 20, 0, NVDIMM, true}, {shared.Region, 64 << 20, 0, IVSHMEM, true}} {
			on := attach(t, text, a)
			if is, ok := parse(t, on).Attached(dir); !ok || is != a {
				t.Errorf("%s: %+v, %v:\n%s", name, is, ok, on)
			}
			if again := attach(t, on, a); again != on {
				t.Errorf("%s: attached twice:\n%s\nafter:\n%s", name, again, on)
			}
			if off := detach(t, on); off != text {
				t.Errorf("%s: detached:\n%s\nwas:\n%s", name, off, text)
			}
			for _, other := range []Attachment{{web.Region, 32 << 20, 7, NVDIMM, false}, {web.Region, 32 << 20, 7, IVSHMEM, true}} {
				if off := detach(t, attach(t, on, other)); off != text {
					t.Errorf("%s: detached after another size:\n%s\nwas:\n%s", name, off, text)
				}
			}
		}
	}
}

func TestWithRegion(t *testing.T) {
	for name, c := range map[string]struct{ want, not []string }{
		"nothing there": {[]string{
			"<maxMemory slots='1' unit='KiB'>1376256</maxMemory>\n  <memory unit='KiB'>262144</memory>",
			"<cpu>\n    <numa>\n      <cell id='0' cpus='0-1' memory='262144' unit='KiB'/>\n    </numa>\n  </cpu>\n  <devices>",
			"<path>/dev/shm/pegasus/web</path>", "<size unit='KiB'>65536</size>", "<!-- <devices> in a comment -->",
		}, nil},
		"a cpu":            {[]string{"<model>qemu64</model>\n    <numa>\n      <cell id='0' cpus='0-1'", "    </numa>\n  </cpu>"}, nil},
		"an empty cpu":     {[]string{"<cpu mode='host-model' >\n    <numa>", "    </numa>\n  </cpu>"}, nil},
		"cells":            {[]string{"<cpu><numa><cell id='0' cpus='0' memory='128' unit='MiB'/><cell id='1'"}, []string{"0-1"}},
		"odd units":        {[]string{"memory='1048576' unit='KiB'"}, nil},
		"more vCPUs later": {[]string{"cpus='0-3'"}, nil},
		"a limit":          {[]string{"<maxMemory slots='4' unit='KiB'>8454144</maxMemory>"}, nil},
		"a low limit":      {[]string{"<maxMemory slots='4' unit='KiB'>372736</maxMemory>"}, []string{"<maxMemory slots='3' unit='MiB'>"}},
		"full slots":       {[]string{"<maxMemory slots='2' unit='KiB'>8454144</maxMemory>", "/var/lib/disk"}, nil},
		"all slots":        {[]string{"<maxMemory slots='256' unit='KiB'>8454144</maxMemory>"}, nil},
	} {
		got := attach(t, written[name], web)
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: lacks %q:\n%s", name, w, got)
			}
		}
		for _, n := range c.not {
			if strings.Contains(got, n) {
				t.Errorf("%s: has %q:\n%s", name, n, got)
			}
		}
	}
}

// Detaching undoes libvirt's own changes of a definition, too; later edits by others stay.
func TestChangedSince(t *testing.T) {
	on := attach(t, bare, web)
	libvirts := strings.Replace(on, "<memory unit='KiB'>262144<", "<memory unit='KiB'>327680<", 1)
	libvirts = strings.Replace(libvirts, "</alias>", "</alias>\n      <address type='dimm' slot='0'/>", 1)
	if off := detach(t, libvirts); off != bare {
		t.Errorf("detached:\n%s", off)
	}
	const kept = "<memory dumpCore='off' unit='KiB'>"
	if off := detach(t, strings.Replace(libvirts, "<memory unit='KiB'>3", kept+"3", 1)); off != strings.Replace(bare, "<memory unit='KiB'>", kept, 1) {
		t.Errorf("detached from a machine whose memory isn't to be dumped:\n%s", off)
	}
	// The prefix may be declared elsewhere: libvirt declares it once.
	said := with("<metadata xmlns:pegasus='urn:pegasus:machine'><x:y xmlns:x='z'/></metadata>")
	on = strings.Replace(attach(t, said, web), "<pegasus:machine xmlns:pegasus='urn:pegasus:machine'", "<pegasus:machine", 1)
	if off := detach(t, on); off != said {
		t.Errorf("detached:\n%s", off)
	}
	// More vCPUs and memory: libvirt puts them into our cell, and counts the region.
	bigger := strings.NewReplacer("<memory unit='KiB'>262144<", "<memory unit='KiB'>589824<", "placement='static'>2<", "placement='static'>4<",
		"cpus='0-1' memory='262144'", "cpus='0-3' memory='524288'")
	large := strings.NewReplacer("<memory unit='KiB'>262144<", "<memory unit='KiB'>524288<", "placement='static'>2<", "placement='static'>4<").Replace(bare)
	on = bigger.Replace(attach(t, bare, web))
	if off := detach(t, on); off != large {
		t.Errorf("detached from a machine that has grown:\n%s", off)
	}
	if off := detach(t, attach(t, on, Attachment{Region: web.Region, Bytes: 32 << 20, Device: NVDIMM})); off != large {
		t.Errorf("attached again to a machine that has grown, and detached:\n%s", off)
	}
	on = attach(t, bare, web)
	for what, c := range map[string]struct{ old, new, left string }{
		"the limit":   {"1376256<", "9376256<", "<maxMemory slots='1' unit='KiB'>9376256</maxMemory>"},
		"the cell":    {"cpus='0-1'", "cpus='0'", "<cell id='0' cpus='0'"},
		"the cpu":     {"<numa>", "<model>x</model><numa>", "<cpu>\n    <model>x</model>\n  </cpu>"},
		"the devices": {"</emulator>", "</emulator><memory model='dimm'><target><size>65536</size></target></memory>", "<numa>"},
		"metadata":    {"<metadata>", "<metadata><x:y xmlns:x='z'/>", "<metadata><x:y xmlns:x='z'/>\n  </metadata>"},
	} {
		changed := strings.Replace(on, c.old, c.new, 1)
		if off := detach(t, changed); changed == on || !strings.Contains(off, c.left) || strings.Contains(off, "pegasus") {
			t.Errorf("%s: %q isn't left:\n%s", what, c.left, off)
		}
	}
}

// A controller that libvirt added for our devices is removed with them, unless another device uses it by then.
func TestControllers(t *testing.T) {
	before := parse(t, strings.Replace(bare, "</emulator>", "</emulator>\n    <controller type='pci' index='0' model='pcie-root'/>", 1))
	on := attach(t, string(before.text), web)
	const brought = "<controller type='pci' index='0' model='pcie-root'/>\n    <controller type='pci' index='1' model='pcie-root-port'/>\n    " +
		"<controller type='virtio-serial' index='0'>\n      <address type='pci' bus='0x01' slot='0x00'/>\n    </controller>"
	on = strings.Replace(on, "<controller type='pci' index='0' model='pcie-root'/>", brought, 1)
	marked := string(parse(t, on).Added(before))
	if n := strings.Count(marked, "<alias name='ua-pegasus"); n != 2+broughtDevices || strings.Count(marked, "<alias name='ua-pegasus-pci-1'/>") != 1 {
		t.Errorf("%d aliases:\n%s", n, marked)
	}
	if again := string(parse(t, marked).Added(before)); again != marked {
		t.Errorf("marked again:\n%s", again)
	}
	if off := detach(t, marked); off != string(before.text) {
		t.Errorf("detached:\n%s", off)
	}
	user := "<disk><address type='pci' bus='0x1'/></disk></devices>"
	if off := detach(t, strings.Replace(marked, "</devices>", user, 1)); !strings.Contains(off, "index='1'") || strings.Contains(off, "virtio-serial") {
		t.Errorf("somebody uses one:\n%s", off)
	}
}

// A machine attached by an earlier release can be detached.
func TestWithoutRecord(t *testing.T) {
	on := attach(t, bare, web)
	from, to := strings.Index(on, "\n  <metadata>"), strings.Index(on, "</metadata>")+len("</metadata>")
	old := on[:from] + on[to:]
	old = strings.Replace(old, "slots='1'", "slots='2'", 1)
	d := parse(t, old)
	if _, ok := d.Attached(dir); !ok {
		t.Fatalf("not attached:\n%s", old)
	}
	off := detach(t, old)
	if _, ok := parse(t, off).Attached(dir); ok || !strings.Contains(off, "slots='1'") {
		t.Errorf("detached:\n%s", off)
	}
	if _, err := parse(t, off).WithoutRegion(dir); err == nil {
		t.Error("detached twice")
	}
}

// A PCI device takes no part of the machine's memory.
func TestShared(t *testing.T) {
	on := attach(t, bare, shared)
	for _, want := range []string{"<shmem name='pegasus-web' role='master'>", "<model type='ivshmem-plain'/>", "<size unit='M'>64</size>", "org.pegasus.0"} {
		if !strings.Contains(on, want) {
			t.Errorf("no %q:\n%s", want, on)
		}
	}
	for _, not := range []string{"maxMemory", "numa", "nvdimm"} {
		if strings.Contains(on, not) {
			t.Errorf("has %q:\n%s", not, on)
		}
	}
	if off := detach(t, strings.Replace(on, "262144<", "327680<", 1)); !strings.Contains(off, "327680<") {
		t.Errorf("somebody gave the machine more memory:\n%s", off)
	}
	noACPI := strings.Replace(bare, "<acpi/>", "", 1)
	if off := detach(t, attach(t, noACPI, shared)); off != noACPI {
		t.Errorf("without ACPI:\n%s", off)
	}
	for name, want := range map[string]string{
		"pegasus-web": dir + "/web", "pegasus-a-b": dir + "/a-b", "pegasus-": "", "pegasus": "", "pegasus-..": "", "pegasus-a/b": "", "other-web": "",
	} {
		got, ok := regionNamed(name, dir+"/")
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", name, got, ok)
		}
	}
}

func TestNotAttached(t *testing.T) {
	for want, text := range map[string]string{
		"only machines of QEMU":     strings.Replace(bare, "'kvm'", "'lxc'", 1),
		"only x86_64":               with("<os><type arch='aarch64' machine='virt'>hvm</type></os>"),
		"has no NVDIMMs":            with("<os><type arch='x86_64' machine='microvm'>hvm</type></os>"),
		"libvirt keeps one element": with("<metadata><p:note xmlns:p='urn:pegasus:machine'/></metadata>"),
		"its memory is encrypted":   with("<launchSecurity type='sev'/>"),
		"whose memory has no slots": with("<os><type arch='x86_64' machine='pc-i440fx-2.0'>hvm</type></os>"),
		"channel org.pegasus.0":     strings.Replace(bare, "</devices>", "<channel type='unix'><target type='virtio' name='org.pegasus.0'/></channel></devices>", 1),
		"add <features><acpi/>":     strings.Replace(bare, "<acpi/>", "", 1),
	} {
		if out, err := parse(t, text).WithRegion(web); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q:\n%s", err, want, out)
		}
	}
	for want, text := range map[string]string{
		"two <devices>":  strings.Replace(bare, "</domain>", "<devices/></domain>", 1),
		"no name":        "<domain type='kvm'><memory>1</memory><devices/></domain>",
		"is no size":     strings.Replace(bare, "KiB", "furlong", 1),
		"closes nothing": strings.Replace(bare, "</devices>", "</device>", 1),
		"is no number":   strings.Replace(bare, ">2<", ">two<", 1),
		"credits":        strings.Replace(attach(t, bare, Attachment{web.Region, mib64, 9, NVDIMM, false}), "credits='9'", "credits='-9'", 1),
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, a := range []Attachment{
		{web.Region, 3 << 20, 0, NVDIMM, false}, {web.Region, 1 << 20, 0, NVDIMM, false}, {web.Region, mib64, 0, "pci", false}, {web.Region, 96 << 20, 0, IVSHMEM, false},
		{"/run/pegasus/web", mib64, 0, IVSHMEM, false}, {"/dev/shm/a/b/web", mib64, 0, IVSHMEM, false},
		{"/dev/shm/" + strings.Repeat("d", 50) + "/" + strings.Repeat("n", 63), mib64, 0, NVDIMM, false},
	} {
		if _, err := parse(t, bare).WithRegion(a); err == nil {
			t.Errorf("%+v isn't refused", a)
		}
	}
}

// A region elsewhere, or other memory, isn't ours.
func TestOthers(t *testing.T) {
	other := strings.Replace(bare, "</emulator>", `</emulator>
    <memory model='dimm'><source><path>/dev/shm/pegasus/x</path></source><target><size unit='MiB'>64</size></target></memory>
    <memory model='nvdimm'><source><path>/var/lib/disk</path></source><target><size unit='MiB'>64</size></target></memory>
    <shmem name='pegasus-x'><model type='ivshmem-doorbell'/></shmem><shmem name='x'><model type='ivshmem-plain'/><size unit='M'>4</size></shmem>`, 1)
	if path, _, ok := parse(t, other).Region(dir); ok {
		t.Errorf("%s is taken for ours", path)
	}
	// The PCI device of another machine's region has an alias of ours; the same name without one is the operator's.
	own := strings.Replace(bare, "</emulator>", "</emulator>\n    <shmem name='pegasus-x'><model type='ivshmem-plain'/><size unit='M'>4</size></shmem>", 1)
	if a, ok := parse(t, own).Attached(dir); ok {
		t.Errorf("%+v is taken for ours", a)
	}
	if _, err := parse(t, own).WithoutRegion(dir); !errors.Is(err, ErrDetached) {
		t.Errorf("detach: got %v, want %v", err, ErrDetached)
	}
	on := attach(t, other, web)
	if d := parse(t, on); d.taken() != 3 || !strings.Contains(on, "/var/lib/disk") {
		t.Errorf("%d devices of memory:\n%s", d.taken(), on)
	}
}

func FuzzDefinition(f *testing.F) {
	for _, text := range written {
		f.Add([]byte(text))
	}
	// Memory in a slot, where there are neither slots nor cells.
	f.Add([]byte(`<domain type='kvm'><name>0</name><memory>0</memory><features><acpi/></features><devices><memory model='dimm'></memory></devices></domain>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		for _, device := range []Device{NVDIMM, IVSHMEM} {
			tryRegion(t, d, Attachment{dir + "/x", mib64, 3, device, false})
		}
	})
}

// tryRegion attaches a machine and detaches it.
func tryRegion(t *testing.T, d *Definition, a Attachment) {
	text := d.text
	_, before := d.Attached(dir)
	on, err := d.WithRegion(a)
	if err != nil {
		return
	}
	with, err := Parse(on)
	if err != nil {
		t.Fatalf("%v:\n%s", err, on)
	}
	if is, ok := with.Attached(dir); !ok || is != a {
		t.Fatalf("%+v:\n%s", is, on)
	}
	off, err := with.WithoutRegion(dir)
	if err != nil {
		t.Fatalf("%v:\n%s", err, on)
	}
	if !before && d.record == nil && len(d.leaving(dir)) == 0 && string(off) != string(text) {
		t.Fatalf("%s\nwas\n%s", off, text)
	}
}

// refusal matches the first line of a definition that is expected to be refused.
var refusal = regexp.MustCompile(`^<!-- ([a-z, ]+): refused: (.*) -->\n`)

// BesideCells detects memory that was edited beside the NUMA cells, as libvirt leaves it, and no other change.
func TestBesideCells(t *testing.T) {
	on := strings.NewReplacer("262144</memory>", "327680</memory>\n  <currentMemory unit='KiB'>262144</currentMemory>").Replace(attach(t, bare, web))
	for what, c := range map[string]struct {
		text            string
		memory, counted uint64 // MiB; 0: no mistake
	}{
		"attached":     {on, 0, 0},
		"not attached": {bare, 0, 0},
		"a libvirt that doesn't count the region": {strings.Replace(on, "327680</memory>", "262144</memory>", 1), 0, 0},
		"the cell was edited":                     {strings.NewReplacer("327680<", "589824<", "memory='262144'", "memory='524288'").Replace(on), 0, 0},
		"less by the balloon":                     {strings.Replace(on, "262144</currentMemory>", "131072</currentMemory>", 1), 0, 0},
		"edited, and dropped":                     {strings.Replace(on, "262144</currentMemory>", "327680</currentMemory>", 1), 320, 256},
		"edited, and kept":                        {strings.Replace(on, "327680</memory>", "1048576</memory>", 1), 960, 256},
	} {
		memory, counted, ok := parse(t, c.text).BesideCells(dir)
		if ok != (c.memory != 0) || memory != c.memory<<20 || counted != c.counted<<20 {
			t.Errorf("%s: %d MiB of %d, %v", what, memory>>20, counted>>20, ok)
		}
	}
}

// Definitions as operators have them are attached and detached to the byte, and keep their slots and addresses for
// memory of their own; or they are refused with a reason.
func TestDefinitions(t *testing.T) {
	all, err := txtar.ParseFile("testdata/definitions.txtar")
	if err != nil || len(all.Files) < 40 {
		t.Fatal(err)
	}
	for _, f := range all.Files {
		for _, a := range []Attachment{{web.Region, mib64, 77, NVDIMM, false}, {web.Region, mib64, 77, IVSHMEM, false}} {
			on, err := func() ([]byte, error) {
				d, err := Parse(f.Data)
				if err != nil {
					return nil, err
				}
				return d.WithRegion(a)
			}()
			if m := refusal.FindSubmatch(f.Data); m != nil && strings.Contains(string(m[1]), string(a.Device)) {
				if err == nil || !strings.Contains(err.Error(), string(m[2])) {
					t.Errorf("%s, %s: %v, want %s", f.Name, a.Device, err, m[2])
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", f.Name, a.Device, err)
				continue
			}
			if again := attach(t, string(on), a); again != string(on) {
				t.Errorf("%s, %s: attached twice:\n%s\nafter:\n%s", f.Name, a.Device, again, on)
			}
			if off := detach(t, string(on)); off != string(f.Data) {
				t.Errorf("%s, %s: detached:\n%s\nwas:\n%s", f.Name, a.Device, off, f.Data)
			}
			was, is := parse(t, string(f.Data)), parse(t, string(on))
			slots, bytes := is.slots-is.taken(), is.maxMemory.bytes-is.memory.bytes
			if a.Device == NVDIMM {
				bytes -= a.Bytes // libvirt counts it as memory
			}
			if was.maxMemory.there() && was.slots < maxSlots && (slots != was.slots-was.taken() || bytes != was.maxMemory.bytes-was.memory.bytes) {
				t.Errorf("%s, %s: %d slots and %d bytes are left for memory, of %d and %d", f.Name, a.Device,
					slots, bytes, was.slots-was.taken(), was.maxMemory.bytes-was.memory.bytes)
			}
		}
	}
}
