package configs

import (
	_ "embed"
	"strings"
	"sync"

	"pegasus/policies"
)

// Key describes a key of the schema.
type Key struct {
	Table   string // daemon, api, default_domain, accelerator or domain
	Key     string
	Default string // as spelled in TOML; accelerators and domains have their names from the file
	Unit    string // of the value, such as bytes; empty: none
	Allowed string // the values that the key accepts
	Help    string // its meaning, from the example with all keys
	Restart bool   // a change of the file takes effect at the daemon's next start
}

// Keys returns all keys, in the order of the schema.
func Keys(opt Options) []Key {
	c := Default()
	a, d := &c.Accelerators[0], &c.Template
	var all []Key
	for _, t := range []struct {
		name   string
		fields []field
	}{{"daemon", c.Daemon.fields()}, {"api", c.API.fields()}, {"default_domain", d.templateFields()}, {"accelerator", a.fields(opt)}, {"domain", d.fields()}} {
		for _, f := range t.fields {
			k := Key{Table: t.name, Key: f.key, Default: f.value.String(), Unit: unitOf(f.value), Help: helpOf(t.name, f.key), Restart: f.when == restart}
			if err := f.value.set(nil); err != nil {
				k.Allowed = strings.TrimPrefix(err.Error(), "must be ")
			}
			all = append(all, k)
		}
	}
	return all
}

// unitOf returns the unit of a key's values.
func unitOf(v value) string {
	switch v := v.(type) {
	case bytes:
		return "bytes"
	case span:
		return "duration"
	case percent:
		return "% of a CPU"
	case parameter:
		if v.Kind == policies.Duration {
			return "duration"
		}
		return v.Unit
	default:
		return ""
	}
}

// example is the file with every key and its meaning.
//
//go:embed examples/full.toml
var example string

// helps returns the comments of the example, by table and key.
var helps = sync.OnceValue(func() map[[2]string]string {
	all := map[[2]string]string{}
	table := ""
	for line := range strings.Lines(example) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			table = strings.Trim(line, "[]")
			continue
		}
		setting, help, ok := strings.Cut(strings.TrimPrefix(line, "# "), " # ")
		key, _, is := strings.Cut(setting, "=")
		if k := [2]string{table, strings.TrimSpace(key)}; ok && is && all[k] == "" {
			all[k] = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(help), "(restart)"))
		}
	}
	return all
})

func helpOf(table, key string) string {
	if table == "default_domain" {
		table = "domain"
	}
	if key == "name" {
		return "its name, by which other tables and commands refer to it"
	}
	return helps()[[2]string{table, key}]
}
