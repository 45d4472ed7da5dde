package configs

import (
	"fmt"
	"slices"
)

// Table is a table of a configuration, with all its keys.
type Table struct {
	Kind     string // daemon, api, default_domain, accelerator or domain
	Name     string // of the accelerator or domain
	Settings []Setting
}

// Setting is one key of a table.
type Setting struct {
	Key     string
	Value   string // as spelled in TOML
	Default string // the same without any file
	Origin  Origin
}

// Origin is the source of a setting's value.
type Origin struct {
	Source Source
	Place  // in a file; zero: none
}

// Place is a line of a file, counted from 1.
type Place struct {
	File string
	Line int
}

// String returns the place as a compiler does.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Source is the kind of an origin.
type Source string

// Sources of the values in a Config.
const (
	FromFile          Source = "file"           // the key stands in its own table
	FromTemplate      Source = "default_domain" // a domain's, from [default_domain]
	FromSpecification Source = "specification"  // a domain's, from the file of promises
	FromDefault       Source = "default"
)

// places are the lines of keys, by table, the table's name, and key.
type places map[[3]string]Place

// note keeps the places of a table's keys.
func (p *parser) note(kind, name string, t table) {
	for key := range t.keys {
		s := t.source(key)
		if p.places == nil {
			p.places = places{}
		}
		p.places[[3]string{kind, name, key}] = Place{s.name, s.lines.of(t.path, key)}
	}
}

// origin returns the source of a key.
func (c *Config) origin(kind, name, key string) Origin {
	if at, ok := c.places[[3]string{kind, name, key}]; ok {
		return Origin{FromFile, at}
	}
	if kind == "domain" {
		if c.Promises != nil && slices.Contains(promisedKeys, key) {
			return Origin{FromSpecification, Place{File: c.Daemon.Specification}}
		}
		if at, ok := c.places[[3]string{"default_domain", "", key}]; ok {
			return Origin{FromTemplate, at}
		}
	}
	return Origin{Source: FromDefault}
}

// promisedKeys are the keys of a domain that a specification sets.
var promisedKeys = []string{"priority", "throughput", "reserve", "reserve_cost", "reserve_period", "reserve_name"}

// Tables returns all tables with their settings, in the order of the schema and of the files.
func (c *Config) Tables() []Table {
	d := defaultDaemon()
	all := []Table{
		c.table("daemon", "", c.Daemon.fields(), d.fields()),
		c.table("api", "", c.API.fields(), new(API).fields()),
		c.TemplateTable(),
	}
	for i := range c.Accelerators {
		all = append(all, c.AcceleratorTable(&c.Accelerators[i]))
	}
	for i := range c.Domains {
		all = append(all, c.DomainTable(&c.Domains[i]))
	}
	return all
}

// TemplateTable returns the [default_domain].
func (c *Config) TemplateTable() Table {
	d := defaultDomain()
	return c.table("default_domain", "", c.Template.templateFields(), d.templateFields())
}

// AcceleratorTable returns an accelerator's settings, with the origins of the accelerator of that name in c.
func (c *Config) AcceleratorTable(a *Accelerator) Table {
	d := defaultOf(a)
	return c.table("accelerator", a.Name, a.fields(Options{}), d.fields(Options{}))
}

// DomainTable returns a domain's settings, with the origins of the domain of that name in c.
func (c *Config) DomainTable(s *Domain) Table {
	d := defaultDomain()
	return c.table("domain", s.Name, s.fields(), d.fields())
}

func (c *Config) table(kind, name string, fields, defaults []field) Table {
	t := Table{kind, name, make([]Setting, len(fields))}
	for i, f := range fields {
		t.Settings[i] = Setting{f.key, f.value.String(), defaults[i].value.String(), c.origin(kind, name, f.key)}
	}
	return t
}

// PlaceOf returns the place in c of a change's new value, or of its table; zero: no file has it.
func (c *Config) PlaceOf(change Change) Place {
	key := change.Key
	if key == "" {
		key = "name"
	}
	return c.places[[3]string{change.Table, change.Name, key}]
}
