package configs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pegasus/policies"
)

// write makes the files of a configuration in a new directory, and returns the path of the first.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "pegasus.toml")
}

// Each setting has the line of the file that gives it, whichever file of the configuration that is.
func TestOrigins(t *testing.T) {
	path := write(t, map[string]string{
		"pegasus.toml": "# a comment\n[daemon]\nlibvirt = [\n\"a:///\",\n]\nlog_level = \"warn\"\n\n[default_domain]\n" +
			"credits = 7\n[[accelerator]]\nname = \"gpu\"\ntick = \"20ms\"\nquantum = \"1ms\"\n[[domain]]\nname = \"web\"\nmemory = \"1GiB\"\n",
		"pegasus.toml.d/10-more.toml":  "[daemon]\nworker_pool = 5\nlog_level = \"warn\"\n[[domain]]\nname = \"db\"\ncredits = 9\n",
		"pegasus.toml.d/20-other.toml": "\n\n[[domain]]\n# x\nname = \"late\"\n[default_domain]\nprocesses = 3\n",
	})
	c, err := Load(path, options)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, table := range c.Tables() {
		for _, s := range table.Settings {
			where := strings.TrimPrefix(s.Origin.Place.String(), filepath.Dir(path)+"/")
			got[strings.Join([]string{table.Kind, table.Name, s.Key}, " ")] = strings.TrimSpace(fmt.Sprint(s.Value, " ", s.Origin.Source, " ", where))
		}
	}
	for key, want := range map[string]string{
		"daemon  libvirt":             `["a:///"] file pegasus.toml:3`,
		"daemon  log_level":           `"warn" file pegasus.toml:6`,
		"daemon  worker_pool":         `5 file pegasus.toml.d/10-more.toml:2`,
		"daemon  spin_time":           `"50us" default`,
		"api  listen":                 `"" default`,
		"default_domain  credits":     `7 file pegasus.toml:9`,
		"default_domain  processes":   `3 file pegasus.toml.d/20-other.toml:7`,
		"accelerator gpu tick":        `"20ms" file pegasus.toml:12`,
		"accelerator gpu quantum":     `"1ms" file pegasus.toml:13`,
		"accelerator gpu policy":      `"accc" default`,
		"domain web name":             `"web" file pegasus.toml:15`,
		"domain web memory":           `"1GiB" file pegasus.toml:16`,
		"domain web credits":          `7 default_domain pegasus.toml:9`,
		"domain db credits":           `9 file pegasus.toml.d/10-more.toml:6`,
		"domain late processes":       `3 default_domain pegasus.toml.d/20-other.toml:7`,
		"domain late arena":           `"256MiB" default`,
		"domain late name":            `"late" file pegasus.toml.d/20-other.toml:5`,
		"accelerator gpu max_domains": `64 default`,
	} {
		if strings.Replace(got[key], "µs", "us", 1) != want {
			t.Errorf("%s: got %s, want %s", key, got[key], want)
		}
	}
}

// The default of a key depends on type and mode of the accelerator, and is shown so.
func TestDefaultsOfSettings(t *testing.T) {
	c, err := Parse("f", []byte("[[accelerator]]\nname = \"gpu\"\ntype = \"nvidia\"\nmode = \"paper\"\nmemory = \"1GiB\"\n"), options)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.AcceleratorTable(&c.Accelerators[0]).Settings {
		switch want := map[string]string{"memory": `"0B"`, "kernel_timeout": `"10s"`, "idle_yield": `"0s"`}[s.Key]; {
		case want != "" && s.Default != want:
			t.Errorf("%s: got the default %s, want %s", s.Key, s.Default, want)
		case s.Origin.Source == FromDefault && s.Value != s.Default && s.Key != "name":
			t.Errorf("%s = %s by default, and the default is %s", s.Key, s.Value, s.Default)
		}
	}
}

// Promises of a specification have its file as their origin, unless the domain's own table has the key.
func TestOriginsOfPromises(t *testing.T) {
	path := write(t, map[string]string{"tasks.spec": "x"})
	spec := filepath.Join(filepath.Dir(path), "tasks.spec")
	opt := options
	opt.Specification = func(string) (map[string]Promise, []error) { return map[string]Promise{"game": {Priority: 4}}, nil }
	c, err := Parse("f", []byte("[daemon]\nspecification = \""+spec+"\"\n[[domain]]\nname = \"game\"\nreserve = \"none\"\n"), opt)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Origin{"priority": {FromSpecification, Place{File: spec}}, "reserve": {FromFile, Place{"f", 5}}, "credits": {Source: FromDefault}}
	for _, s := range c.DomainTable(&c.Domains[0]).Settings {
		if o, ok := want[s.Key]; ok && s.Origin != o {
			t.Errorf("%s: got %+v, want %+v", s.Key, s.Origin, o)
		}
	}
	plain := Default().Template
	for _, f := range plain.templateFields() { // the keys that a promise sets are those that promised changes
		before := f.value.String()
		if after := get(new(Config{Template: plain, Promises: map[string]Promise{"x": {7, true, "pe", time.Second, time.Minute, "name"}}}).promised("x"), f.key); (after != before) != slices.Contains(promisedKeys, f.key) {
			t.Errorf("%s: a promise changes %s to %s", f.key, before, after)
		}
	}
}

func get(d Domain, key string) string { return d.Get(key) }

// Every key has a meaning, the values that it accepts, and the unit of sizes and durations.
func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys(options) {
		if k.Help == "" || k.Allowed == "" {
			t.Errorf("%s.%s: help %q, allowed %q", k.Table, k.Key, k.Help, k.Allowed)
		}
		seen[k.Table+" "+k.Key] = true
	}
	for _, table := range Default().Tables() {
		for _, s := range table.Settings {
			if !seen[table.Kind+" "+s.Key] {
				t.Errorf("%s.%s is not described", table.Kind, s.Key)
			}
		}
	}
	for _, p := range policies.Params() {
		if !seen["accelerator "+p.Key] {
			t.Errorf("the parameter %s is not described", p.Key)
		}
	}
}

// randomValue gives a field a value that a file could have, if it finds one.
func randomValue(r *rand.Rand, f field) {
	words := []any{"", "a", "web", "/run/x", "/ö \"q\" \\", "none", "pe", "load", "launch", "debug", "json", "text", "production", "paper", "mrq", "0600", "150%", "0%", "rr", "none",
		"nvidia", "soft", "127.0.0.1:7070", "root", "0", "0s", "1ms", "10ms", "1s", "100us", "16MiB", "1GiB", "4096KiB", "arrival", "priority", "deadline", "edf", "fp", "policy",
		true, false, int64(0), int64(1), int64(r.IntN(1000)), int64(r.IntN(1 << 30)), []any{}, []any{"qemu:///system", "xen:///"},
		fmt.Sprintf("%dus", r.IntN(1_000_000_000)), fmt.Sprintf("%dKiB", r.IntN(1<<30)), fmt.Sprintf("%d", r.IntN(100))}
	for range 8 {
		if f.value.set(words[r.IntN(len(words))]) == nil {
			return
		}
	}
}

// The printed form of a random configuration, with a comment on each line, is parsed to an equal configuration; or the
// combination of values is refused, in its printed form as before.
func TestPrintedIsEqual(t *testing.T) {
	equal := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := Default()
		change := func(fields []field, part int) {
			for _, f := range fields {
				if f.key != "name" && r.IntN(part) == 0 {
					randomValue(r, f)
				}
			}
		}
		part := 1 + r.IntN(20)
		change(c.Daemon.fields(), part)
		c.Daemon.Specification = ""
		if r.IntN(4) == 0 {
			change(c.API.fields(), 2)
		}
		change(c.Template.templateFields(), part)
		for i := range r.IntN(3) {
			a := defaultAccelerator(fmt.Sprint("acc", i))
			change(a.fields(options), part)
			c.Accelerators = append(c.Accelerators, a)
		}
		for i := range r.IntN(4) {
			d := c.Undeclared(fmt.Sprint("d", i))
			change(d.templateFields(), part)
			c.Domains = append(c.Domains, d)
		}
		printed := Print(c.Tables(), func(_ Table, s Setting) string { return string(s.Origin.Source) + " \"#'\x01é\n" })
		read, err := Parse("printed", printed, options)
		if err != nil {
			if _, again := Parse("printed", c.Marshal(), options); again == nil || again.Error() != err.Error() {
				t.Fatalf("seed %d: with comments %v, without %v\n%s", seed, err, again, printed)
			}
			continue
		}
		equal++
		if changes := Diff(c, read); len(changes) > 0 || string(read.Marshal()) != string(c.Marshal()) {
			t.Fatalf("seed %d: %v\n%s", seed, changes, printed)
		}
		n := 0
		for i, line := range strings.Split(string(printed), "\n") { // each line is the origin of its own key
			if key, _, ok := strings.Cut(line, " = "); ok {
				for _, at := range read.places {
					if at.Line == i+1 {
						n++
						goto next
					}
				}
				t.Fatalf("seed %d: line %d of %s has no key", seed, i+1, key)
			next:
			}
		}
		if n != len(read.places) {
			t.Fatalf("seed %d: %d of %d places", seed, n, len(read.places))
		}
	}
	if equal < 20 {
		t.Errorf("%d configurations were accepted", equal)
	}
}

// A running daemon adopts the hot keys of [daemon], and no others.
func TestDaemonFollowing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	was, next := defaultDaemon(), defaultDaemon()
	a, b := was.fields(), next.fields()
	for i := range b {
		for b[i].value.String() == a[i].value.String() {
			randomValue(r, b[i])
		}
	}
	got := was.Following(next)
	for i, f := range got.fields() {
		want := a[i].value.String()
		if f.when == hot {
			want = b[i].value.String()
		}
		if f.value.String() != want {
			t.Errorf("%s: got %v, want %s", f.key, f.value, want)
		}
	}
}
