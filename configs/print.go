package configs

import "fmt"

// Marshal returns the configuration as a file that Parse reads back to an equal one: it contains every key,
// with the defaults filled in.
func (c *Config) Marshal() []byte {
	var b []byte
	b = appendTable(b, "[daemon]", c.Daemon.fields())
	b = appendTable(b, "[api]", c.API.fields())
	b = appendTable(b, "[default_domain]", c.Template.templateFields())
	for i := range c.Accelerators {
		b = appendTable(b, "[[accelerator]]", c.Accelerators[i].fields(Options{}))
	}
	for i := range c.Domains {
		b = appendTable(b, "[[domain]]", c.Domains[i].fields())
	}
	return b
}

func appendTable(b []byte, header string, fields []field) []byte {
	if len(b) > 0 {
		b = append(b, '\n')
	}
	b = fmt.Appendln(b, header)
	for _, f := range fields {
		b = fmt.Appendf(b, "%s = %v\n", f.key, f.value)
	}
	return b
}
