package configs

import (
	"fmt"
	"maps"
)

// Change is one difference between two configurations.
type Change struct {
	Table string // daemon, default_domain, accelerator or domain
	Name  string // of the accelerator or domain
	Key   string // empty if the whole table was added or removed
	Old   string // as spelled in TOML; empty if the table was added
	New   string // as spelled in TOML; empty if the table was removed
	// Hot is set if a running daemon can adopt the change; otherwise the change takes effect at its next
	// start.
	Hot bool
}

// String returns the change in the terms of the file.
func (c Change) String() string {
	where := c.Table
	if c.Name != "" {
		where += " " + quote(c.Name)
	}
	switch {
	case c.Key != "":
		return where + ": " + c.Key + " = " + c.Old + " → " + c.New
	case c.Old == "":
		return where + ": added"
	default:
		return where + ": removed"
	}
}

// Diff returns the differences between two configurations, in the order of the schema and of the tables in
// next. While the daemon runs, domains may be added, removed and changed; accelerators may only be changed.
func Diff(old, next *Config) []Change {
	var all []Change
	all = append(all, diffFields("daemon", "", old.Daemon.fields(), next.Daemon.fields())...)
	all = append(all, diffFields("api", "", old.API.fields(), next.API.fields())...)
	if old.Daemon.Specification == next.Daemon.Specification && !maps.Equal(old.Promises, next.Promises) {
		all = append(all, Change{"daemon", "", "specification", entries(old), entries(next), true})
	}
	all = append(all, diffFields("default_domain", "", old.Template.templateFields(), next.Template.templateFields())...)
	all = append(all, diffTables("accelerator", restart, acceleratorTables(old), acceleratorTables(next))...)
	all = append(all, diffTables("domain", hot, domainTables(old), domainTables(next))...)
	return all
}

func entries(c *Config) string { return fmt.Sprintf("%d entries", len(c.Promises)) }

// namedTable is a table's view for Diff.
type namedTable struct {
	name   string
	fields []field
}

func acceleratorTables(c *Config) []namedTable {
	var tables []namedTable
	for i := range c.Accelerators {
		a := &c.Accelerators[i]
		tables = append(tables, namedTable{a.Name, a.fields(Options{})})
	}
	return tables
}

func domainTables(c *Config) []namedTable {
	var tables []namedTable
	for i := range c.Domains {
		d := &c.Domains[i]
		tables = append(tables, namedTable{d.Name, d.fields()})
	}
	return tables
}

func diffTables(kind string, comeAndGo applies, old, next []namedTable) []Change {
	var all []Change
	before := byName(old)
	for _, t := range next {
		was, ok := before[t.name]
		if !ok {
			all = append(all, Change{Table: kind, Name: t.name, New: "added", Hot: bool(comeAndGo)})
			continue
		}
		all = append(all, diffFields(kind, t.name, was.fields, t.fields)...)
	}
	after := byName(next)
	for _, t := range old {
		if _, ok := after[t.name]; !ok {
			all = append(all, Change{Table: kind, Name: t.name, Old: "removed", Hot: bool(comeAndGo)})
		}
	}
	return all
}

func byName(tables []namedTable) map[string]namedTable {
	m := make(map[string]namedTable, len(tables))
	for _, t := range tables {
		m[t.name] = t
	}
	return m
}

func diffFields(kind, name string, old, next []field) []Change {
	var all []Change
	for i, f := range next {
		if was := old[i].value.String(); was != f.value.String() {
			all = append(all, Change{kind, name, f.key, was, f.value.String(), bool(f.when)})
		}
	}
	return all
}
