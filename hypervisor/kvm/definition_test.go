package kvm

import (
	"strings"
	"testing"
)

const plain = `<domain type='kvm'>
  <name>web</name>
  <memory unit='KiB'>262144</memory>
  <vcpu placement='static'>2</vcpu>
  <!-- <devices> in a comment -->
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
  </devices>
</domain>
`

func parse(t *testing.T, text string) *Definition {
	t.Helper()
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWithRegion(t *testing.T) {
	const cpu = "<cpu mode='custom'>\n    <model>qemu64</model>\n  </cpu>\n  <devices>"
	for name, c := range map[string]struct {
		text string
		want []string
		not  []string
	}{
		"nothing there": {plain, []string{
			"<maxMemory slots='1' unit='KiB'>1376256</maxMemory>\n  <memory unit='KiB'>262144</memory>",
			"<cpu>\n    <numa>\n      <cell id='0' cpus='0-1' memory='262144' unit='KiB'/>\n    </numa>\n  </cpu>\n  <devices>",
			"<path>/dev/shm/pegasus/web</path>", "<size unit='KiB'>65536</size>", "    </memory>\n  </devices>", "<!-- <devices> in a comment -->",
		}, nil},
		"a cpu": {strings.Replace(plain, "<devices>\n", cpu+"\n", 1), []string{
			"<model>qemu64</model>\n    <numa>\n      <cell id='0' cpus='0-1'", "    </numa>\n  </cpu>",
		}, nil},
		"an empty cpu": {strings.Replace(plain, "<devices>\n", "<cpu mode='host-model'/>\n  <devices>\n", 1), []string{
			"<cpu mode='host-model'>\n    <numa>", "    </numa>\n  </cpu>",
		}, nil},
		"cells": {strings.Replace(plain, "<devices>\n", "<cpu><numa><cell id='0' cpus='0' memory='128' unit='MiB'/></numa></cpu>\n<devices>\n", 1),
			[]string{"<cpu><numa><cell id='0' cpus='0' memory='128' unit='MiB'/></numa></cpu>"}, []string{"0-1"}},
		"other memory": {strings.Replace(plain, "<memory ", "<maxMemory slots='3' unit='GiB'>8</maxMemory><memory ", 1), []string{
			"<maxMemory slots='4' unit='KiB'>8454144</maxMemory>",
		}, []string{"slots='3'"}},
	} {
		got, err := parse(t, c.text).WithRegion("/dev/shm/pegasus/web", 64<<20)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(string(got), w) {
				t.Errorf("%s: lacks %q:\n%s", name, w, got)
			}
		}
		for _, n := range c.not {
			if strings.Contains(string(got), n) {
				t.Errorf("%s: has %q:\n%s", name, n, got)
			}
		}
		path, bytes, ok := parse(t, string(got)).Region("/dev/shm/pegasus/")
		if path != "/dev/shm/pegasus/web" || bytes != 64<<20 || !ok {
			t.Errorf("%s: region %s of %d bytes, %v", name, path, bytes, ok)
		}
	}
}

// To attach again, with another size, leaves one region; to detach leaves none.
func TestAgain(t *testing.T) {
	const dir = "/dev/shm/pegasus"
	text, err := parse(t, plain).WithRegion(dir+"/web", 64<<20)
	if err == nil {
		text, err = parse(t, string(text)).WithRegion(dir+"/web", 128<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, string(text))
	if _, bytes, _ := d.Region(dir); bytes != 128<<20 || len(d.regions) != 1 || d.slots != 1 {
		t.Errorf("%d regions, the first of %d bytes, %d slots:\n%s", len(d.regions), bytes, d.slots, text)
	}
	text, err = d.WithoutRegion(dir)
	if err != nil {
		t.Fatal(err)
	}
	d = parse(t, string(text))
	if _, _, ok := d.Region(dir); ok || !strings.Contains(string(text), "</emulator>\n  </devices>") {
		t.Errorf("still there:\n%s", text)
	}
	if _, err := d.WithoutRegion(dir); err == nil {
		t.Error("detached twice")
	}
}

// A region elsewhere, or other memory, isn't ours.
func TestOthers(t *testing.T) {
	other := strings.Replace(plain, "</emulator>", `</emulator>
    <memory model='dimm'><source><path>/dev/shm/pegasus/x</path></source><target><size unit='MiB'>64</size></target></memory>
    <memory model='nvdimm'><source><path>/var/lib/disk</path></source><target><size unit='MiB'>64</size></target></memory>`, 1)
	d := parse(t, other)
	if path, _, ok := d.Region("/dev/shm/pegasus"); ok {
		t.Errorf("%s is taken for ours", path)
	}
	text, err := d.WithRegion("/dev/shm/pegasus/web", 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if d := parse(t, string(text)); len(d.regions) != 2 || !strings.Contains(string(text), "/var/lib/disk") {
		t.Errorf("%d regions:\n%s", len(d.regions), text)
	}
}

func FuzzDefinition(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte("<domain><name>a</name><memory>1</memory><devices/></domain>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		if out, err := d.WithRegion("/r/x", 64<<20); err == nil {
			if again, err := Parse(out); err != nil {
				t.Fatalf("%v:\n%s", err, out)
			} else if _, _, ok := again.Region("/r"); !ok {
				t.Fatalf("no region:\n%s", out)
			}
		}
	})
}
