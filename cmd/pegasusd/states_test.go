package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/backend/control"
)

// The daemon reads the state files of earlier releases, which their daemons wrote after `pegasus set web credits=512`,
// `pegasus policy rr` and, in later ones, `pegasus create pod credits=300`. A file that it does not read is kept, and
// the log names the file and the remedy.
func TestStatesOfEarlierReleases(t *testing.T) {
	files, err := filepath.Glob("testdata/states/*.json")
	if err != nil || len(files) < 6 {
		t.Fatalf("state files %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h := prepareHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"64MiB\"\n[[domain]]\nname = \"web\"\n")
			state := filepath.Join(h.dir, "state.json")
			if err := os.WriteFile(state, text, 0o600); err != nil {
				t.Fatal(err)
			}
			h.start()
			log := func() string { // once all of it is written
				h.stop()
				text, err := os.ReadFile(filepath.Join(h.dir, "log"))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			if strings.HasPrefix(filepath.Base(file), "refused-") {
				if d := h.domain("web"); d.Credits != 256 {
					t.Errorf("credits %d, want those of the configuration, 256", d.Credits)
				}
				kept, err := os.ReadFile(state + ".unread")
				if err != nil || string(kept) != string(text) || !strings.Contains(log(), state+": of a release that this daemon does not read; repeat") {
					t.Errorf("kept %q, %v, or the log lacks the remedy", kept, err)
				}
				return
			}
			domains := map[string]control.Domain{}
			all, err := h.api().Domains(bg)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range all {
				domains[d.Name] = d
			}
			if got := domains["web"].Credits; got != 512 {
				t.Errorf("web: credits %d, want 512", got)
			}
			if strings.Contains(string(text), `"pod"`) && (domains["pod"].Credits != 300 || len(domains["pod"].Leases) != 1) {
				t.Errorf("pod: %+v, want 300 credits and a lease", domains["pod"])
			}
			accelerators, err := h.api().Accelerators(bg)
			if err != nil || accelerators[0].Policy != "rr" {
				t.Errorf("accelerators %+v, %v; want the policy rr", accelerators, err)
			}
			if text := log(); strings.Contains(text, "previous daemon failed") || strings.Contains(text, "restore a switched policy failed") {
				t.Error("the log has an error about the state")
			}
		})
	}
}
