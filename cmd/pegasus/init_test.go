package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/configs"
	"pegasus/policies"
)

var updateInit = flag.Bool("update-init", false, "write the expected configurations of TestInitConfig")

// Each kind of host gets its configuration, which the check accepts.
func TestInitConfig(t *testing.T) {
	gpu := gpuFact{UUID: "GPU-5f4c0a1e-0000-1111-2222-333344445555", Name: "NVIDIA H200", Memory: 139 << 30}
	none := "no GPU of NVIDIA's with a loaded driver: /dev/nvidiactl is missing"
	for name, h := range map[string]hostFacts{
		"laptop":   {Cores: 2, Memory: 4 << 30, Driver: none},
		"libvirt":  {Cores: 16, Memory: 64 << 30, Driver: none, Libvirt: true, Machines: []string{"db", "web"}, Group: true},
		"dom0":     {Cores: 4, Memory: 8 << 30, Driver: none, Dom0: true, Group: true},
		"gpus":     {Cores: 16, Memory: 128 << 30, GPUs: []gpuFact{gpu, gpu}, Libvirt: true, Group: true},
		"injected": {Cores: 1, Memory: 1 << 20, Driver: "lost\n[daemon]\nspin_threads = 9"},
	} {
		t.Run(name, func(t *testing.T) {
			got := configFor(h)
			// The group need not exist where the test runs.
			check := strings.Replace(string(got), `control_group = "pegasus"`, `control_group = "root"`, 1)
			if _, err := configs.Parse("generated", []byte(check), configs.Options{Policies: policies.Names()}); err != nil {
				t.Error(err)
			}
			file := filepath.Join("testdata", "init", name+".toml")
			if *updateInit {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s\ngo test -run TestInitConfig ./cmd/pegasus -update-init writes it", got, want)
			}
		})
	}
}

// A file with settings is kept without --force; one with comments alone, as packages have it, is replaced.
func TestStateOfConfig(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"# nothing\n\n  # set\n": emptyConfig, "": emptyConfig, "# a\n[daemon]\n": settingsConfig} {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := stateOfConfig(path); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got := stateOfConfig(filepath.Join(dir, "missing")); got != noConfig {
		t.Errorf("a missing file: got %s", got)
	}
	if got := stateOfConfig(dir); got != settingsConfig {
		t.Errorf("a path that can't be read: got %s", got)
	}
}

// The hook of the package is the one that attach writes, so that attach finds it in place.
func TestPackagedHook(t *testing.T) {
	text, err := os.ReadFile(repository + "/packaging/libvirt-hook")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(hookText, quoted("/usr/bin/pegasus"), quoted(regionsDir), quoted(regionsDir+"/")); string(text) != want {
		t.Errorf("packaging/libvirt-hook:\n%s\nwant:\n%s", text, want)
	}
}

// The configuration of the package is valid and sets nothing.
func TestPackagedConfig(t *testing.T) {
	path := repository + "/packaging/pegasus.toml"
	if got := stateOfConfig(path); got != emptyConfig {
		t.Errorf("its state is %s, want %s", got, emptyConfig)
	}
}
