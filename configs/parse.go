package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// topTables are the names that may stand at the top of the file.
var topTables = []string{"daemon", "default_domain", "accelerator", "domain"}

// Parse checks the text of a file; name stands for it in errors. The error is
// Errors, with everything that is wrong.
func Parse(name string, text []byte, opt Options) (*Config, error) {
	if len(text) > maxFile {
		return nil, Errors{{File: name, Problem: fmt.Sprintf("longer than %v", Size(maxFile))}}
	}
	plain := strings.TrimPrefix(string(text), "\ufeff") // a byte order mark, as some editors add
	if line := invalidUTF8(plain); line > 0 {
		return nil, Errors{{File: name, Line: line, Problem: "not TOML: isn't UTF-8"}}
	}
	var tree map[string]any
	if _, err := toml.Decode(plain, &tree); err != nil {
		return nil, syntaxError(name, err, opt)
	}
	p := &parser{file: name, lines: findLines(plain), opt: opt}
	c := p.config(tree)
	if len(p.errs) > 0 {
		p.errs.sort()
		return nil, p.errs
	}
	return c, nil
}

// invalidUTF8 returns the first line that isn't UTF-8, or 0.
func invalidUTF8(text string) int {
	n := 1
	for line := range strings.Lines(text) {
		if !utf8.ValidString(line) {
			return n
		}
		n++
	}
	return 0
}

// parser walks the decoded file and gathers what is wrong with it.
type parser struct {
	file  string
	lines lines
	opt   Options
	errs  Errors
}

// table is one table of the file on its way into the Config.
type table struct {
	path  string // as lines knows it, such as domain[2]
	label string // as people know it, such as domain "web"
	keys  map[string]any
}

func (p *parser) config(tree map[string]any) *Config {
	c := Default()
	for _, key := range sortedKeys(tree) {
		if !slices.Contains(topTables, key) {
			p.fail(table{}, key, tree[key], unknown(key, "table", topTables))
		}
	}
	daemon := p.one(tree, "daemon")
	p.fill(daemon, c.Daemon.fields())
	p.specification(c, daemon)
	p.fill(p.one(tree, "default_domain"), c.Template.templateFields())
	accelerators := p.many(tree, "accelerator")
	if v, ok := tree["accelerator"]; ok && len(elements(v)) == 0 {
		p.fail(table{}, "accelerator", v, mustBe("one table or more, each written [[accelerator]]; without the key there is one of type \"soft\""))
	}
	p.accelerators(c, accelerators)
	p.domains(c, p.many(tree, "domain"))
	return c
}

func (p *parser) accelerators(c *Config, tables []table) {
	if len(tables) > 0 {
		c.Accelerators = nil
	}
	seen := map[string]int{}
	for i, t := range tables {
		a := defaultAccelerator("")
		p.fill(t, a.fields(p.opt))
		if a.Mode == "paper" && t.keys["idle_yield"] == nil {
			a.IdleYield = 0 // the published algorithm keeps idle windows
		}
		if a.RotationCap < a.Tick {
			p.fail(t, "rotation_cap", t.keys["rotation_cap"],
				mustBe("at least the tick, %q", shortest(a.Tick)))
		}
		if a.BackgroundPeriod < a.BackgroundCost {
			p.fail(t, "background_period", t.keys["background_period"],
				mustBe("at least the background_cost, %q", shortest(a.BackgroundCost)))
		}
		if len(p.opt.Types) > 0 && !slices.Contains(p.opt.Types, a.Type) {
			p.fail(t, "type", a.Type, fmt.Errorf("this build has no such accelerators: must be one of %s", quoteAll(p.opt.Types)))
		}
		p.ofItsType(t, &a)
		p.named(t, a.Name, i, seen)
		c.Accelerators = append(c.Accelerators, a)
	}
}

// ofItsType checks what accelerators of one type alone have, or the others.
func (p *parser) ofItsType(t table, a *Accelerator) {
	soft := a.Type == "soft"
	if !soft && t.keys["memory"] == nil {
		a.Memory = 0
	}
	for _, wrong := range []struct {
		is  bool
		key string
		why string
	}{
		{soft && a.Device != "", "device", `goes with type = "nvidia"`},
		{soft && a.Library != "", "library", `goes with type = "nvidia"`},
		{soft && a.Memory == 0, "memory", `must not be 0, which goes with type = "nvidia"`},
	} {
		if wrong.is {
			p.fail(t, wrong.key, t.keys[wrong.key], errors.New(wrong.why))
		}
	}
}

func (p *parser) domains(c *Config, tables []table) {
	seen := map[string]int{}
	p.domain(c, table{path: "default_domain", label: "default_domain"}, c.Template)
	if len(tables) > MaxDomains {
		p.fail(tables[MaxDomains], "", nil, fmt.Errorf("is the [[domain]] after %d others, the most there can be", MaxDomains))
		return
	}
	for i, t := range tables {
		name, _ := t.keys["name"].(string)
		d := c.promised(name)
		p.fill(t, d.fields())
		p.domain(c, t, d)
		p.named(t, d.Name, i, seen)
		c.Domains = append(c.Domains, d)
	}
}

// domain checks what one key alone can't show. What a domain has from the
// template is complained about there, once.
func (p *parser) domain(c *Config, t table, d Domain) {
	own := func(key string) bool { return t.keys == nil || t.keys[key] != nil }
	if err := d.fitsAccelerators(c); err != nil && own("accelerator") {
		p.fail(t, "accelerator", d.Accelerator, err)
	}
	if err := d.fitsHostMemory(); err != nil && (own("arena") || own("host_memory")) {
		p.fail(t, "arena", d.Arena.String(), err)
	}
	if err := d.fitsMemory(); err != nil && (own("memory") || own("memory_guarantee")) {
		p.fail(t, "memory_guarantee", d.Guarantee.String(), err)
	}
	if err := d.fitsReserve(); err != nil && (own("reserve") || own("reserve_cost") || own("reserve_period") || own("throughput")) {
		p.fail(t, "reserve", d.Reserve, err)
	}
}

// named checks that a table has a name of its own.
func (p *parser) named(t table, name string, i int, seen map[string]int) {
	kind := t.path[:len(t.path)-len(fmt.Sprintf("[%d]", i))]
	if t.keys["name"] == nil {
		p.fail(t, "name", nil, fmt.Errorf("is missing: every [[%s]] needs one", kind))
		return
	}
	if name == "" {
		return // refused already
	}
	if first, ok := seen[name]; ok {
		line := p.lines.of(element(kind, first), "name")
		p.fail(t, "name", name, fmt.Errorf("is taken by the [[%s]] of line %d: names must differ", kind, line))
		return
	}
	seen[name] = i
}

// fill reads the keys of a table into its fields.
func (p *parser) fill(t table, fields []field) {
	allowed := keysOf(fields)
	for _, key := range sortedKeys(t.keys) {
		i := slices.Index(allowed, key)
		if i < 0 {
			p.fail(t, key, t.keys[key], unknown(key, "key", allowed))
			continue
		}
		if err := fields[i].value.set(t.keys[key]); err != nil {
			p.fail(t, key, t.keys[key], err)
		}
	}
}

// allowed says what a key such as accelerator.cores takes, or nothing if there is none.
func allowed(table, key string, opt Options) string {
	c := Default()
	var fields []field
	switch table {
	case "daemon":
		fields = c.Daemon.fields()
	case "accelerator":
		fields = c.Accelerators[0].fields(opt)
	case "default_domain", "domain":
		fields = c.Template.fields()
	}
	for _, f := range fields {
		if err := f.value.set(nil); f.key == key && err != nil {
			return err.Error()
		}
	}
	return ""
}

func unknown(key, what string, allowed []string) error {
	return fmt.Errorf("unknown %s%s; allowed: %s", what, didYouMean(key, allowed), joinPlain(allowed))
}

// one finds a table that stands once, such as [daemon].
func (p *parser) one(tree map[string]any, key string) table {
	v, ok := tree[key]
	if !ok {
		return table{}
	}
	keys, ok := v.(map[string]any)
	if !ok {
		p.fail(table{}, key, v, mustBe("a table, written [%s]", key))
	}
	return table{path: key, label: key, keys: keys}
}

// many finds the tables of an array, such as [[domain]].
func (p *parser) many(tree map[string]any, key string) []table {
	v, ok := tree[key]
	if !ok {
		return nil
	}
	var tables []table
	for i, v := range elements(v) {
		keys, ok := v.(map[string]any)
		if !ok {
			p.fail(table{}, key, v, mustBe("tables, each written [[%s]]", key))
			return nil
		}
		t := table{path: element(key, i), label: fmt.Sprintf("%s %d", key, i+1), keys: keys}
		if s, ok := keys["name"].(string); ok {
			t.label = key + " " + quote(s)
		}
		tables = append(tables, t)
	}
	return tables
}

// elements gives an array of any kind as a plain one; what is no array, such as
// the table of a mistaken [domain], as a single element that isn't a table.
func elements(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case []map[string]any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = v[i]
		}
		return all
	default:
		return []any{nil}
	}
}

func (p *parser) fail(t table, key string, v any, problem error) {
	p.errs = append(p.errs, &Error{
		File:    p.file,
		Line:    p.lines.of(t.path, key),
		Table:   t.label,
		Key:     key,
		Value:   spell(v),
		Problem: problem.Error(),
	})
}
