package configs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"pegasus/policies"
)

// topTables are the names allowed at the top of the file.
var topTables = []string{"daemon", "api", "default_domain", "accelerator", "domain"}

// Parse checks the text of a file; errors use name for it. The error is an Errors with all mistakes.
func Parse(name string, bytes []byte, opt Options) (*Config, error) {
	return parseAll([]fileText{{name, bytes}}, opt)
}

// fileText is the text of a file.
type fileText struct {
	name  string
	bytes []byte
}

// parseAll checks the texts of files that together are one configuration.
func parseAll(texts []fileText, opt Options) (*Config, error) {
	p := &parser{opt: opt}
	for _, t := range texts {
		s, err := readSource(t, opt)
		if err != nil {
			p.errs = append(p.errs, err...)
			continue
		}
		p.sources = append(p.sources, s)
	}
	if len(p.errs) > 0 { // the file that isn't TOML may contain the objects that others refer to
		return nil, p.errs
	}
	c := p.config()
	if len(p.errs) > 0 {
		p.sort()
		return nil, p.errs
	}
	return c, nil
}

// readSource decodes a file.
func readSource(t fileText, opt Options) (*source, Errors) {
	if len(t.bytes) > maxFile {
		return nil, Errors{{File: t.name, Problem: fmt.Sprintf("longer than %v", Size(maxFile))}}
	}
	plain := strings.TrimPrefix(string(t.bytes), "\ufeff") // a byte order mark, as some editors add
	if line := invalidUTF8(plain); line > 0 {
		return nil, Errors{{File: t.name, Line: line, Problem: "not TOML: isn't UTF-8"}}
	}
	s := &source{name: t.name}
	if _, err := toml.Decode(plain, &s.tree); err != nil {
		return nil, syntaxError(t.name, err, opt)
	}
	s.lines = findLines(plain)
	return s, nil
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

// parser walks the decoded files and collects their mistakes.
type parser struct {
	sources []*source
	opt     Options
	errs    Errors
	places  places
}

// table is one table of the files on its way into the Config.
type table struct {
	path  string // for lines, such as domain[2]
	label string // for people, such as domain "web"
	keys  map[string]any
	src   *source            // its file; of a table that several files have, the first
	from  map[string]*source // the files of such a table's keys
}

// source returns the file of a key.
func (t *table) source(key string) *source {
	if s := t.from[key]; s != nil {
		return s
	}
	return t.src
}

func (p *parser) config() *Config {
	c := Default()
	for _, s := range p.sources {
		for _, key := range sortedKeys(s.tree) {
			if !slices.Contains(topTables, key) {
				p.fail(table{src: s}, key, s.tree[key], unknown(key, "table", topTables))
			}
		}
	}
	daemon := p.one("daemon")
	p.fill(daemon, c.Daemon.fields())
	p.note("daemon", "", daemon)
	p.specification(c, daemon)
	api := p.one("api")
	p.fill(api, c.API.fields())
	p.note("api", "", api)
	p.checkAPI(&c.API, api)
	template := p.one("default_domain")
	p.fill(template, c.Template.templateFields())
	p.note("default_domain", "", template)
	accelerators := p.many("accelerator")
	for _, s := range p.sources {
		if v, ok := s.tree["accelerator"]; ok && len(elements(v)) == 0 {
			p.fail(table{src: s}, "accelerator", v, mustBe("one table or more, each written [[accelerator]]; without the key there is one of type \"soft\""))
		}
	}
	p.accelerators(c, accelerators)
	domains := p.many("domain")
	p.domains(c, template, domains)
	if len(p.errs) == 0 {
		p.objectives(c, domains)
	}
	c.places = p.places
	for i := range c.Domains {
		if c.index == nil {
			c.index = make(map[string]int, len(c.Domains))
		}
		c.index[c.Domains[i].Name] = i
	}
	return c
}

func (p *parser) accelerators(c *Config, tables []table) {
	if len(tables) > 0 {
		c.Accelerators = nil
	}
	seen := map[string]table{}
	for _, t := range tables {
		a := defaultAccelerator("")
		p.fill(t, a.fields(p.opt))
		p.note("accelerator", a.Name, t)
		if a.Mode == "paper" && t.keys["idle_yield"] == nil {
			a.IdleYield = defaultOf(&a).IdleYield
		}
		if a.RotationCap < a.Tick {
			p.fail(t, "rotation_cap", t.keys["rotation_cap"],
				mustBe("at least the tick, %q", shortest(a.Tick)))
		}
		for _, param := range policies.Params() {
			if least := param.AtLeast; least != nil && a.Params.Get(param) < a.Params.Get(least) {
				p.fail(t, param.Key, t.keys[param.Key], mustBe("at least the %s, %v", least.Key, parameter{least, &a.Params}))
			}
		}
		if len(p.opt.Types) > 0 && !slices.Contains(p.opt.Types, a.Type) {
			p.fail(t, "type", a.Type, fmt.Errorf("this build has no such accelerators: must be one of %s", quoteAll(p.opt.Types)))
		}
		p.ofItsType(t, &a)
		p.named(t, "accelerator", a.Name, seen)
		c.Accelerators = append(c.Accelerators, a)
	}
}

// ofItsType sets the defaults that depend on the type of accelerator, and checks the keys that only some types have.
func (p *parser) ofItsType(t table, a *Accelerator) {
	soft, def := a.Type == "soft", defaultOf(a)
	if t.keys["memory"] == nil {
		a.Memory = def.Memory
	}
	if t.keys["kernel_timeout"] == nil {
		a.KernelTimeout = def.KernelTimeout
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

func (p *parser) domains(c *Config, template table, tables []table) {
	seen := map[string]table{}
	template.path, template.label, template.keys = "default_domain", "default_domain", nil
	p.domain(c, template, c.Template)
	if len(tables) > MaxDomains {
		p.fail(tables[MaxDomains], "", nil, fmt.Errorf("is the [[domain]] after %d others, the most there can be", MaxDomains))
		return
	}
	for _, t := range tables {
		name, _ := t.keys["name"].(string)
		d := c.promised(name)
		p.fill(t, d.fields())
		p.note("domain", d.Name, t)
		p.domain(c, t, d)
		p.named(t, "domain", d.Name, seen)
		c.Domains = append(c.Domains, d)
	}
}

// domain checks the combinations of keys. Mistakes that a domain has from the template are reported there,
// once.
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

// named checks that a table has a unique name.
func (p *parser) named(t table, kind, name string, seen map[string]table) {
	if t.keys["name"] == nil {
		p.fail(t, "name", nil, fmt.Errorf("is missing: every [[%s]] needs one", kind))
		return
	}
	if name == "" {
		return // refused already
	}
	if first, ok := seen[name]; ok {
		where := first.src.at(first.path, "name")
		if first.src == t.src {
			where = fmt.Sprintf("line %d", t.src.lines.of(first.path, "name"))
		}
		p.fail(t, "name", name, fmt.Errorf("is taken by the [[%s]] of %s: names must differ", kind, where))
		return
	}
	seen[name] = t
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

// allowed returns the values that a key such as accelerator.cores accepts, or "" for an unknown key.
func allowed(table, key string, opt Options) string {
	c := Default()
	var fields []field
	switch table {
	case "daemon":
		fields = c.Daemon.fields()
	case "api":
		fields = c.API.fields()
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
	return fmt.Errorf("unknown %s%s; allowed: %s", what, DidYouMean(key, allowed), joinPlain(allowed))
}

// one returns a table that occurs once in a file, such as [daemon].
func (p *parser) one(key string) table {
	var t table
	for _, s := range p.sources {
		v, ok := s.tree[key]
		if !ok {
			continue
		}
		if t.src == nil {
			t = table{path: key, label: key, src: s}
		}
		keys, ok := v.(map[string]any)
		if !ok {
			p.fail(table{src: s}, key, v, mustBe("a table, written [%s]", key))
		}
		p.merge(&t, keys, s)
	}
	return t
}

// many returns the tables of an array, such as [[domain]], of all files.
func (p *parser) many(key string) []table {
	var tables []table
	for _, s := range p.sources {
		v, ok := s.tree[key]
		if !ok {
			continue
		}
		for i, v := range elements(v) {
			keys, ok := v.(map[string]any)
			if !ok {
				p.fail(table{src: s}, key, v, mustBe("tables, each written [[%s]]", key))
				break
			}
			t := table{path: element(key, i), label: fmt.Sprintf("%s %d", key, i+1), keys: keys, src: s}
			if name, ok := keys["name"].(string); ok {
				t.label = key + " " + quote(name)
			}
			tables = append(tables, t)
		}
	}
	return tables
}

// elements returns an array of any kind as a plain one; a value that is no array, such as the table of a
// mistaken [domain], becomes a single element that isn't a table.
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
	s := t.source(key)
	if s == nil { // a table that no file has: the configuration as a whole
		s = p.sources[0]
	}
	p.errs = append(p.errs, &Error{
		File:    s.name,
		Line:    s.lines.of(t.path, key),
		Table:   t.label,
		Key:     key,
		Value:   spell(v),
		Problem: problem.Error(),
	})
}

// checkAPI checks the keys of [api] against each other.
func (p *parser) checkAPI(a *API, t table) {
	if (a.Certificate == "") != (a.Key == "") {
		p.fail(t, "certificate", a.Certificate, errors.New("certificate and key go together: give both, or none"))
	}
	if a.Listen == "" {
		if a.Page {
			p.fail(t, "page", a.Page, errors.New("needs listen: browsers can't use the control socket"))
		}
		return
	}
	at, err := netip.ParseAddrPort(a.Listen)
	if err == nil && !at.Addr().IsLoopback() && a.Certificate == "" {
		p.fail(t, "listen", a.Listen, errors.New("without certificate and key the address must be a loopback address, such as 127.0.0.1: tokens would cross the network unencrypted"))
	}
	if a.ViewToken == "" && a.OperateToken == "" {
		p.fail(t, "listen", a.Listen, errors.New("needs view_token or operate_token, files with a token"))
	}
	if a.ViewToken != "" && a.ViewToken == a.OperateToken {
		p.fail(t, "view_token", a.ViewToken, errors.New("is operate_token, too: callers that may view could change settings; give each a file of its own"))
	}
}
