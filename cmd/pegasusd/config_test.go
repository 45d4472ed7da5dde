package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/policies"
)

// config returns the daemon's configuration, with its settings by "table name key".
func (h *host) config() (control.Config, map[string]control.Setting) {
	h.t.Helper()
	g, err := h.api().Config(bg)
	if err != nil {
		h.t.Fatal(err)
	}
	all := map[string]control.Setting{}
	for _, t := range g.Tables {
		for _, s := range t.Settings {
			all[strings.Join(append([]string{t.Table}, strings.Fields(t.Name+" "+s.Key)...), " ")] = s
		}
	}
	return g, all
}

// dropIn writes a drop-in beside the configuration.
func (h *host) dropIn(name, text string) string {
	h.t.Helper()
	g, _ := h.config()
	path := filepath.Join(g.Config+".d", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// Every setting has its origin, which outlives the daemon; the printed tables are the configuration in force.
func TestConfigOfDaemon(t *testing.T) {
	h := newHost(t, twoDomains)
	extra := h.dropIn("10-more.toml", "[daemon]\nworker_pool = 1\n[default_domain]\nprocesses = 9\n[[domain]]\nname = \"late\"\npriority = 3\n")
	if _, err := h.reload(); err != nil {
		t.Fatal(err)
	}
	h.mustSet("a", "credits", "77")
	if _, err := h.api().SwitchPolicy(bg, control.PolicyParams{Name: "rr"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.api().SetLog(bg, control.LogParams{Level: "debug"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.api().Create(bg, control.CreateParams{Domain: "made", Settings: map[string]string{"credits": "33"}}); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"at first", "after a restart"} {
		g, all := h.config()
		made := map[string]control.Setting{}
		for _, s := range h.domain("made").Settings {
			made[s.Key] = s
		}
		for _, c := range []struct {
			got         control.Setting
			value, from string
			file        string
			line        int
		}{
			{all["domain a credits"], "77", control.FromSet, "", 0},
			{all["accelerator soft0 policy"], `"rr"`, control.FromSet, "", 0},
			{all["daemon log_level"], `"debug"`, control.FromSet, "", 0},
			{all["daemon worker_pool"], "1", "file", extra, 2},
			{all["domain late priority"], "3", "file", extra, 7},
			{all["domain late processes"], "9", "default_domain", extra, 4},
			{all["domain a processes"], "9", "default_domain", extra, 4},
			{all["accelerator soft0 quantum"], `"500µs"`, "default", "", 0},
			{all["daemon spin_threads"], "0", "default", "", 0},
			{all["daemon runtime_dir"], `"` + h.dir + `"`, control.FromFlag, "", 0},
			{made["credits"], "33", control.FromCreate, "", 0},
			{made["processes"], "9", "default_domain", extra, 4},
		} {
			o := c.got.Origin
			if c.got.Value != c.value || o.Source != c.from || o.File != c.file || o.Line != c.line {
				t.Errorf("%s: got %+v, want %s from %s %s:%d", when, c.got, c.value, c.from, c.file, c.line)
			}
			if by := o.Source == control.FromSet || o.Source == control.FromCreate; by && (o.By == nil || o.By.UID != os.Getuid() || time.Since(o.At) > time.Hour) {
				t.Errorf("%s: %s: by %+v at %v", when, c.got.Key, o.By, o.At)
			}
		}
		for _, k := range g.Keys {
			if _, ok := all[k.Table+" "+k.Key]; !ok && k.Table != "accelerator" && k.Table != "domain" {
				t.Errorf("%s: no %s.%s", when, k.Table, k.Key)
			}
		}
		for _, p := range policies.Params() {
			if _, ok := all["accelerator soft0 "+p.Key]; !ok {
				t.Errorf("%s: no parameter %s", when, p.Key)
			}
		}
		var tables []configs.Table
		for _, table := range g.Tables {
			next := configs.Table{Kind: table.Table, Name: table.Name}
			for _, s := range table.Settings {
				next.Settings = append(next.Settings, configs.Setting{Key: s.Key, Value: s.Value})
			}
			tables = append(tables, next)
		}
		printed := configs.Print(tables, nil)
		read, err := configs.Parse("printed", printed, accepted)
		if err != nil {
			t.Fatalf("%s: %v\n%s", when, err, printed)
		}
		if again := read.Marshal(); string(again) != string(printed) {
			t.Errorf("%s: printed\n%s\nread\n%s", when, printed, again)
		}
		if len(g.Reload.Changes)+len(g.Reload.Mistakes) > 0 {
			t.Errorf("%s: a reload would change %+v", when, g.Reload)
		}
		h.stop()
		h.start()
	}
}

// The configuration shows what a reload would change, with the lines, and changes nothing itself.
func TestConfigShowsReload(t *testing.T) {
	h := newHost(t, twoDomains)
	h.mustSet("a", "credits", "77")
	h.configure(strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncredits = 5", 1) + "[daemon]\nspin_threads = 3\n")
	g, all := h.config()
	text, err := json.Marshal(g.Reload)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); len(g.Reload.Changes) != 2 || !strings.Contains(s, `daemon: spin_threads = 0 → 3`) || !strings.Contains(s, `domain \"a\": credits = 77 → 5`) {
		t.Errorf("got %s", text)
	}
	lines := strings.Split(strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncredits = 5", 1)+"[daemon]\nspin_threads = 3\n", "\n")
	for _, c := range g.Reload.Changes {
		key := "credits"
		if c.Restart {
			key = "spin_threads"
		}
		if c.File != g.Config || c.Line == 0 || !strings.HasPrefix(lines[c.Line-1], key) {
			t.Errorf("%+v", c)
		}
	}
	if s := all["domain a credits"]; s.Value != "77" {
		t.Errorf("reading has changed it: %+v", s)
	}
	h.configure(twoDomains + "[[domain]]\nname = \"c\"\ncredits = 0\ncolour = 1\n")
	g, _ = h.config()
	if m := g.Reload.Mistakes; len(m) != 2 || m[0].File != g.Config || m[0].Line == 0 || len(g.Reload.Changes) != 0 {
		t.Errorf("mistakes %+v", g.Reload)
	}
	if h.knows("c") {
		t.Error("a domain came with it")
	}
	h.mustReload(strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncredits = 5", 1) + "[daemon]\nspin_threads = 3\n")
	g, all = h.config()
	if s := all["daemon spin_threads"]; s.Value != "0" || s.Origin.Source != "default" || all["domain a credits"].Value != "5" {
		t.Errorf("after a reload: %+v", s)
	}
	if c := g.Reload.Changes; len(c) != 1 || !c[0].Restart {
		t.Errorf("the restart still changes spin_threads: got %+v", c)
	}
}

// A reload reports the changes that the configuration announced: from the values in force, without those that an operator
// has made before, and with the program that keeps a value until its end.
func TestReloadChangesAsAnnounced(t *testing.T) {
	h := newHost(t, twoDomains, "--log-level", "error")
	if _, err := h.api().Hold(bg, control.HoldParams{Domain: "b", Credits: 33}); err != nil {
		t.Fatal(err)
	}
	h.mustSet("a", "credits", "77")
	h.mustSet("a", "priority", "2")
	if _, err := h.api().SwitchPolicy(bg, control.PolicyParams{Name: "rr"}); err != nil {
		t.Fatal(err)
	}
	next := strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncredits = 5\npriority = 2", 1)
	next = strings.Replace(next, `name = "b"`, "name = \"b\"\ncredits = 6", 1)
	next = strings.Replace(next, `name = "soft0"`, "name = \"soft0\"\npolicy = \"lag\"\nswap = \"1GiB\"", 1)
	next += "[daemon]\nlog_level = \"warn\"\n"
	h.configure(next)
	g, _ := h.config()
	var announced, made []string
	for _, c := range g.Reload.Changes {
		announced = append(announced, c.Text)
	}
	for _, c := range h.mustReload(next).Changes {
		made = append(made, c.Text)
	}
	want := []string{
		`accelerator "soft0": swap = "0B" → "1GiB"`, `accelerator "soft0": policy = "rr" → "lag"`, `domain "a": credits = 77 → 5`,
		fmt.Sprintf(`domain "b": credits = 33 → 6 when process %d has ended`, os.Getpid()),
	}
	if !slices.Equal(announced, want) || !slices.Equal(made, want) {
		t.Errorf("announced %q, made %q; want %q", announced, made, want)
	}
	if d := h.domain("b"); d.Credits != 33 {
		t.Errorf("credits of b are %d, want the program's 33", d.Credits)
	}
}

// The level of the log changes while the daemon runs. It holds over a restart, before the command line's, and ends when
// the configuration gets another.
func TestLogLevel(t *testing.T) {
	t.Setenv("PEGASUS_LOG_LEVEL", "")
	h := newHost(t, twoDomains, "--log-level", "error")
	level := func(want, from string) {
		t.Helper()
		if l, err := h.api().Log(bg); err != nil || l.Level != want || l.Origin.Source != from {
			t.Errorf("got %+v, %v; want %s from %s", l, err, want, from)
		}
	}
	logged := func(text string) bool {
		t.Helper()
		log, err := os.ReadFile(filepath.Join(h.dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(log), text)
	}
	level("error", control.FromFlag)
	h.mustSet("a", "credits", "11")
	if _, err := h.api().SetLog(bg, control.LogParams{Level: "Info"}); err != nil {
		t.Fatal(err)
	}
	level("info", control.FromSet)
	h.mustSet("a", "credits", "12")
	h.eventually("the log has the second change", func() bool { return logged("credits = 12") })
	if logged("credits = 11") {
		t.Error("the level error shows an event")
	}
	h.stop()
	h.start()
	level("info", control.FromSet)
	h.mustReload(twoDomains + "[daemon]\nlog_level = \"warn\"\n")
	level("error", control.FromFlag)
	h.stop()
	h.args = nil
	h.start()
	level("warn", "file")
	h.mustSet("a", "credits", "13")
	h.mustReload(twoDomains)
	level("info", "default")
	if logged("credits = 13") {
		t.Error("the level warn shows an event")
	}
}

// With log_format = "json" the lines of workers are JSON, too.
func TestLogFormat(t *testing.T) {
	h := newHost(t, "[daemon]\nlog_format = \"json\"\n"+twoDomains)
	g := h.guest("a")
	g.must("context")
	g.kill()
	h.eventually("the worker is gone", func() bool { return h.domain("a").Processes == 0 })
	h.stop()
	log, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
}
