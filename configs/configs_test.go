package configs

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pegasus/policies"
)

var update = flag.Bool("update", false, "write the .bad files' messages anew")

var options = Options{Policies: []string{"none", "rr", "accc"}}

func read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	return files
}

// Each .good file is accepted, and its effective form, after the line "---", is Marshal's output of the
// tables it names.
func TestGood(t *testing.T) {
	for _, file := range glob(t, "testdata/*.good") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, want, found := strings.Cut(string(read(t, file)), "\n---\n")
			if !found {
				t.Fatal("no line ---")
			}
			c, err := Parse("pegasus.toml", []byte(text), options)
			if err != nil {
				t.Fatal(err)
			}
			got := string(c.Marshal())
			for line := range strings.Lines(want) {
				rest, ok := after(got, line)
				if !ok {
					t.Fatalf("the effective form lacks, in this order, %sit is:\n%s", line, c.Marshal())
				}
				got = rest
			}
		})
	}
}

// after returns the text after a whole line.
func after(text, line string) (string, bool) {
	if rest, ok := strings.CutPrefix(text, line); ok {
		return rest, true
	}
	_, rest, ok := strings.Cut(text, "\n"+line)
	return rest, ok
}

// Each .bad file is refused with exactly the messages after the line "---". There, "(the policies' parameters)"
// stands for the list of their keys.
func TestBad(t *testing.T) {
	for _, file := range glob(t, "testdata/*.bad") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, want, _ := strings.Cut(string(read(t, file)), "\n---\n")
			_, err := Parse("pegasus.toml", []byte(text), options)
			if err == nil {
				t.Fatal("accepted")
			}
			var params []string
			for _, p := range policies.Params() {
				params = append(params, p.Key)
			}
			got := strings.ReplaceAll(err.Error(), strings.Join(params, ", "), "(the policies' parameters)") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(text+"\n---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestExamples(t *testing.T) {
	for _, file := range glob(t, "examples/*.toml") {
		c, err := Load(file, options)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		again(t, c)
	}
}

// again checks that a configuration survives being printed.
func again(t testing.TB, c *Config) {
	t.Helper()
	printed := c.Marshal()
	c2, err := Parse("printed", printed, options)
	if err != nil {
		t.Fatalf("the printed form is refused: %v\n%s", err, printed)
	}
	if !reflect.DeepEqual(placeless(c), placeless(c2)) {
		t.Fatalf("the printed form means something else: %v\n%s", Diff(c, c2), printed)
	}
}

// placeless returns a configuration without the places of its keys.
func placeless(c *Config) Config {
	plain := *c
	plain.places = nil
	return plain
}

// The full example names every key, so that it can serve as the reference, and
// its values are the defaults that it claims to show.
func TestFullExampleIsComplete(t *testing.T) {
	text := string(read(t, "examples/full.toml"))
	c := Default()
	a, d := defaultAccelerator("x"), defaultDomain()
	for _, fields := range [][]field{c.Daemon.fields(), a.fields(options), d.fields()} {
		for _, f := range fields {
			if !strings.Contains(text, "\n"+f.key+" ") && !strings.Contains(text, "\n# "+f.key+" ") {
				t.Errorf("no %s", f.key)
			}
		}
	}
	full, err := Parse("full.toml", []byte(text), options)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := full.Accelerators[0], defaultAccelerator("soft0"); got != want {
		t.Errorf("accelerator: got %+v, the default is %+v", got, want)
	}
}

// Defaults that depend on the type of accelerator hold unless the key is set.
func TestDefaultsOfType(t *testing.T) {
	const text = `
[[accelerator]]
name = "soft"
[[accelerator]]
name = "gpu"
type = "nvidia"
[[accelerator]]
name = "set"
type = "nvidia"
memory = "1GiB"
kernel_timeout = "1m"
`
	c, err := Parse("f", []byte(text), options)
	if err != nil {
		t.Fatal(err)
	}
	type defaults struct {
		timeout time.Duration
		memory  Size
	}
	for i, want := range []defaults{{time.Minute, 2 * GiB}, {10 * time.Second, 0}, {time.Minute, GiB}} {
		a := c.Accelerators[i]
		if got := (defaults{a.KernelTimeout, a.Memory}); got != want {
			t.Errorf("%s: got %+v, want %+v", a.Name, got, want)
		}
	}
}

// Cases that a .bad file can't contain: bytes that aren't text, and properties of this build.
func TestRefused(t *testing.T) {
	many := strings.Repeat("[[domain]]\n", MaxDomains)
	for want, c := range map[string]struct {
		text string
		opt  Options
	}{
		"f:1: not TOML: isn't UTF-8":                                    {"\xff\xfe[daemon]", options},
		"f:3: not TOML: isn't UTF-8":                                    {"[daemon]\n# fine\nlog_level = \"\xe4\"\n", options},
		"f:16385: domain 16385: is the [[domain]] after 16384 others":   {many + "[[domain]]", options},
		`f:3: accelerator "a": type = "nvidia": this build has no such`: {"[[accelerator]]\nname = 'a'\ntype = 'nvidia'", Options{Types: []string{"soft"}}},
		`f:1: accelerator = […]: must be one table or more`:             {"accelerator = []", options},
		`f:2: daemon: log_level = 3: must be`:                           {"\ufeff[daemon]\n\"log\\u005flevel\" = 3", options},
		`f:1: daemon = 3: must be`:                                      {"\ufeffdaemon = 3", options},
	} {
		if _, err := Parse("f", []byte(c.text), c.opt); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %.200v, want %s…", err, want)
		}
	}
}

func TestEmptyFileIsDefault(t *testing.T) {
	c, err := Parse("empty", nil, options)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, Default()) {
		t.Errorf("differs: %v", Diff(Default(), c))
	}
	again(t, c)
}

func TestLoadMissing(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.toml"), options)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestErrorsCanBeTakenApart(t *testing.T) {
	_, err := Parse("f", []byte("[daemon]\nlog_level = 'loud'\n"), options)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("no *Error in %v", err)
	}
	if e.File != "f" || e.Line != 2 || e.Table != "daemon" || e.Key != "log_level" || e.Value != `"loud"` {
		t.Errorf("got %+v", *e)
	}
}

func TestDomain(t *testing.T) {
	c, err := Parse("f", []byte(`
[default_domain]
credits = 100
[[domain]]
name = "web"
memory = "1GiB"
`), options)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := c.Domain("web"); err != nil || d.Credits != 100 || d.Memory != GiB {
		t.Errorf("web: %+v, %v", d, err)
	}
	if d, err := c.Domain("other"); err != nil || d.Credits != 100 || d.Name != "other" || d.Memory != 0 {
		t.Errorf("other: %+v, %v", d, err)
	}
	for _, bad := range []string{"", "..", "a/b", "-x", "a b", strings.Repeat("x", 64), "ä"} {
		if _, err := c.Domain(bad); err == nil {
			t.Errorf("%q was taken as a name", bad)
		}
	}
	c.Daemon.UndeclaredDomains = false
	if _, err := c.Domain("wed"); err == nil || !strings.Contains(err.Error(), `did you mean "web"?`) {
		t.Errorf("undeclared: %v", err)
	}
}

func TestDiff(t *testing.T) {
	parse := func(text string) *Config {
		c, err := Parse("f", []byte(text), options)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := parse(`
[daemon]
log_level = "info"
[[accelerator]]
name = "a"
tick = "30ms"
[[domain]]
name = "gone"
[[domain]]
name = "kept"
credits = 256
`)
	next := parse(`
[daemon]
log_level = "debug"
log_format = "json"
[[accelerator]]
name = "a"
tick = "10ms"
cores = 1
[[accelerator]]
name = "b"
[[domain]]
name = "new"
[[domain]]
name = "kept"
credits = 512
`)
	want := []string{
		`hot: daemon: log_level = "info" → "debug"`,
		`restart: daemon: log_format = "text" → "json"`,
		`restart: accelerator "a": cores = 0 → 1`,
		`hot: accelerator "a": tick = "30ms" → "10ms"`,
		`restart: accelerator "b": added`,
		`hot: domain "new": added`,
		`hot: domain "kept": credits = 256 → 512`,
		`hot: domain "gone": removed`,
	}
	var got []string
	for _, c := range Diff(old, next) {
		when := "restart"
		if c.Hot {
			when = "hot"
		}
		got = append(got, when+": "+c.String())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := Diff(next, next); len(same) > 0 {
		t.Errorf("differs from itself: %v", same)
	}
}

func TestSet(t *testing.T) {
	d := defaultDomain()
	for _, s := range [][2]string{{"credits", "1024"}, {"memory", "1GiB"}, {"host_memory", "1048576"}, {"accelerator", "7"}} {
		if err := d.Set(s[0], s[1]); err != nil {
			t.Error(err)
		}
	}
	if d.Credits != 1024 || d.Memory != GiB || d.HostMemory != MiB || d.Accelerator != "7" {
		t.Errorf("got %+v", d)
	}
	before := d
	for _, s := range [][3]string{
		{"credits", "0", `credits = "0": must be a whole number from 1 to 65535`},
		{"credits", "many", `must be a whole number`},
		{"name", "x", `name: unknown key`},
		{"credit", "1", `did you mean "credits"?`},
		{"arena", "1048577", `a multiple of "4KiB"`},
		{"socket_mode", "rw", `socket_mode = "rw": must be`},
	} {
		if err := d.Set(s[0], s[1]); err == nil || !strings.Contains(err.Error(), s[2]) {
			t.Errorf("%s=%s: got %v, want …%s…", s[0], s[1], err, s[2])
		}
	}
	if d != before {
		t.Errorf("a refused change changed it: %+v", d)
	}
	d.Arena, d.Accelerator = 2*MiB, "soft1"
	err := d.Check(Default())
	for _, want := range []string{`arena = "2MiB": must be at most host_memory, "1MiB"`, `accelerator = "soft1": must be the name of an [[accelerator]]: "soft0"; did you mean "soft0"?`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check: %v, want …%s…", err, want)
		}
	}
	a := defaultAccelerator("a")
	if err := a.Set("policy", "RR", options); err != nil || a.Policy != "rr" {
		t.Errorf("policy %q, %v", a.Policy, err)
	}
	if err := a.Set("policy", "lottery", options); err == nil {
		t.Error("took an unknown policy")
	}
}

// A running accelerator adopts all hot keys, and no others.
func TestFollowing(t *testing.T) {
	a, b := defaultAccelerator("a"), Accelerator{Name: "b", Device: "1", Library: "/lib", Cores: 7, Swap: GiB, MaxCredits: 1024, CPUFollows: true}
	for _, p := range policies.Params() {
		b.Params.Set(p, p.Max)
	}
	got := a.Following(b)
	fields, was, now := got.fields(options), a.fields(options), b.fields(options)
	for i, f := range fields {
		want := was[i].value.String()
		if f.when == hot {
			want = now[i].value.String()
		}
		if was[i].value.String() == now[i].value.String() {
			t.Errorf("%s: the test has nothing to tell by", f.key)
		}
		if f.value.String() != want {
			t.Errorf("%s = %v, want %s", f.key, f.value, want)
		}
	}
	if a.Get("tick") != `"30ms"` || a.Get("max_domains") != "64" || a.Get("colour") != "" {
		t.Errorf("get: %s, %s, %s", a.Get("tick"), a.Get("max_domains"), a.Get("colour"))
	}
}

func TestSize(t *testing.T) {
	good := map[string]Size{
		"0": 0, "7": 7, "4096B": 4096, "1KiB": KiB, "1.5GiB": 3 * GiB / 2, "512 MiB": 512 * MiB, " 2TiB ": 2 * TiB,
	}
	for s, want := range good {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-1", "1MB", "1.5", "1e3", "0x10", "9223372036854775807KiB", "8388608TiB", "1.2.3KiB", "inf", "NaN", ".", "GiB"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q was taken as %v", s, got)
		}
	}
	if got := (3 * GiB / 2).String(); got != "1536MiB" {
		t.Errorf("1.5 GiB is printed as %s", got)
	}
}

func TestShortest(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"30ms": 30 * time.Millisecond, "10s": 10 * time.Second, "1m": time.Minute, "1h": time.Hour,
		"1h0m1s": time.Hour + time.Second, "10m": 10 * time.Minute, "1m10s": 70 * time.Second, "0s": 0, "24h": 24 * time.Hour,
	} {
		got := shortest(d)
		if back, err := time.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	found := findLines(`# comment [not.a.table]
top = """
a = 1
""\""""
[ daemon ] # trailing
list = [ # [x]
  "]", ']',
]
'quoted key' = 1
"esc\u0061ped\"" = 1
'"raw"' = 1
a . b = 2
[[domain]]
name = "x" # y
[[domain]]
inline = { a = "}", b = [
1] }
last = '''
''''`)
	want := lines{
		"top": 2, "daemon": 5, "daemon.list": 6, "daemon.quoted key": 9, "daemon.escaped\"": 10, "daemon.\"raw\"": 11, "daemon.a.b": 12,
		"domain": 13, "domain[0]": 13, "domain[0].name": 14,
		"domain[1]": 15, "domain[1].inline": 16, "domain[1].last": 18,
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("got %v\nwant %v", found, want)
	}
}

// An accepted configuration prints to an equal one; a refused one gives errors with lines of the file.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"examples/*.toml", "testdata/*.good", "testdata/*.bad"} {
		for _, file := range glob(f, pattern) {
			text, _, _ := strings.Cut(string(read(f, file)), "\n---\n")
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text, options)
		if err == nil {
			if len(c.Accelerators) == 0 {
				t.Fatal("no accelerator")
			}
			again(t, c)
			return
		}
		var all Errors
		if !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("refused with %v", err)
		}
		last := strings.Count(string(text), "\n") + 1
		for _, e := range all {
			if e.Line < 0 || e.Line > last || e.Problem == "" {
				t.Fatalf("bad error %+v in a file of %d lines", *e, last)
			}
		}
	})
}

// A specification promises values to domains by name: they act like the template, so a domain's own table
// takes precedence.
func TestSpecification(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.spec")
	if err := os.WriteFile(path, []byte("the entries"), 0o644); err != nil {
		t.Fatal(err)
	}
	opt := options
	promises := map[string]Promise{
		"game":  {Priority: -5, Reserve: "pe", ReserveCost: 5 * time.Millisecond, ReservePeriod: 25 * time.Millisecond},
		"shell": {Priority: 9, Throughput: true, Reserve: "none"},
	}
	opt.Specification = func(text string) (map[string]Promise, []error) {
		if text != "the entries" {
			t.Errorf("the file says %q", text)
		}
		return promises, []error{errors.New("line 7: is odd")}
	}
	text := "[daemon]\nspecification = \"" + path + "\"\n[default_domain]\ncredits = 7\npriority = 3\n[[domain]]\nname = \"game\"\npriority = 8\n"
	c, err := Parse("f", []byte(text), opt)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		priority int
		reserve  string
		cost     time.Duration
		through  bool
	}{"game": {8, "pe", 5 * time.Millisecond, false}, "shell": {9, "none", 0, true}, "other": {0, "background", 0, false}} {
		if d, err := c.Domain(name); err != nil || d.Priority != want.priority || d.Reserve != want.reserve ||
			d.ReserveCost != want.cost || d.Throughput != want.through || d.Credits != 7 {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], path) || !strings.Contains(c.Warnings[0], "line 7: is odd") {
		t.Errorf("warnings %q", c.Warnings)
	}
	promises = map[string]Promise{"game": {Reserve: "none"}}
	next, err := Parse("f", []byte(text), opt)
	if err != nil {
		t.Fatal(err)
	}
	changes := Diff(c, next)
	if len(changes) == 0 || changes[0].String() != "daemon: specification = 2 entries → 1 entries" || !changes[0].Hot {
		t.Errorf("changes %v", changes)
	}
	_, err = Parse("f", []byte("[daemon]\nspecification = \"/nosuch/file\"\n"), opt)
	if err == nil || !strings.Contains(err.Error(), "f:2: daemon: specification = \"/nosuch/file\": can't be read") {
		t.Errorf("a file that isn't there: %v", err)
	}
	_, err = Parse("f", []byte(text+"throughput = true\n"), func() Options {
		promises["game"] = Promise{Reserve: "pe", ReserveCost: 1, ReservePeriod: time.Second}
		return opt
	}())
	if err == nil || !strings.Contains(err.Error(), "with throughput") {
		t.Errorf("throughput beside a reserve of the specification: %v", err)
	}
}

// The measurements of an accelerator stay when it follows another configuration.
func TestFollowingKeepsWhatWasMeasured(t *testing.T) {
	a := Accelerator{Name: "gpu0", Change: 3, Context: 4 << 20}
	if got := a.Following(Accelerator{Name: "gpu0"}); got.Change != a.Change || got.Context != a.Context {
		t.Errorf("change %v, context %v", got.Change, got.Context)
	}
}

// A lookup costs about as much in the largest configuration as in a small one, also one of a domain that is not declared:
// the daemon makes lookups while it holds its lock.
func TestManyDomains(t *testing.T) {
	const few, many = 256, 16384
	declaring := func(n int) *Config {
		text := []byte("[daemon]\nundeclared_domains = false\n")
		for i := range n {
			text = fmt.Appendf(text, "[[domain]]\nname = \"domain-%d\"\ncredits = %d\n", i, i+1)
		}
		c, err := Parse("many.toml", text, Options{Policies: []string{"accc"}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	lookups := func(c *Config, n int) time.Duration {
		begin := time.Now()
		for i := range few {
			i = (i+1)*n/few - 1
			if d, err := c.Domain(fmt.Sprint("domain-", i)); err != nil || d.Credits != i+1 {
				t.Fatalf("domain-%d: credits %d, %v; want %d", i, d.Credits, err, i+1)
			}
			if name := fmt.Sprint("other-", i); c.Declares(name) {
				t.Fatalf("%s is declared", name)
			} else if _, err := c.Domain(name); err == nil {
				t.Fatalf("%s: no error", name)
			}
		}
		return time.Since(begin)
	}
	small, c := declaring(few), declaring(many)
	inSmall, inLarge := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for range 20 { // the least of them: a busy machine delays some
		inSmall, inLarge = min(inSmall, lookups(small, few)), min(inLarge, lookups(c, many))
	}
	if inLarge > inSmall*many/few/4 {
		t.Errorf("%d lookups took %v with %d domains, and %v with %d: want far less than in proportion", few, inLarge, many, inSmall, few)
	}
	if _, err := c.Domain("domain-16385"); !strings.Contains(fmt.Sprint(err), "did you mean") {
		t.Errorf("error %v, want a similar name", err)
	}
}
