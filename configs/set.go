package configs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Set changes one key of the domain from plain text, as in `pegasus set web memory=1GiB`: the value is
// spelled as in the file, but without quotes. The name can't be changed. Set checks only the one key; Check
// checks all keys together.
func (d *Domain) Set(key, text string) error {
	return setField(d.templateFields(), key, text, hot)
}

// Give is Set for a domain that does not exist yet: it also changes keys that can't change later.
func (d *Domain) Give(key, text string) error {
	return setField(d.templateFields(), key, text, restart)
}

// Set changes one key of the accelerator from plain text; policy must be one of
// opt's.
func (a *Accelerator) Set(key, text string, opt Options) error {
	return setField(a.fields(opt)[1:], key, text, hot)
}

// Check returns the mistakes of a domain under a configuration that Set does not detect.
func (d *Domain) Check(c *Config) error {
	return errors.Join(wrong("accelerator", d.Accelerator, d.fitsAccelerators(c)), wrong("arena", d.Arena.String(), d.fitsHostMemory()),
		wrong("memory_guarantee", d.Guarantee.String(), d.fitsMemory()), wrong("reserve", d.Reserve, d.fitsReserve()))
}

func wrong(key, value string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s = %s: %w", key, quote(value), err)
}

func (d *Domain) fitsAccelerators(c *Config) error {
	names := c.acceleratorNames()
	if d.Accelerator == "" || slices.Contains(names, d.Accelerator) {
		return nil
	}
	return mustBe("the name of an [[accelerator]]: %s%s", quoteAll(names), DidYouMean(d.Accelerator, names))
}

func (d *Domain) fitsHostMemory() error {
	if d.Arena <= d.HostMemory {
		return nil
	}
	return mustBe("at most host_memory, %q, of which arenas are part", d.HostMemory)
}

func (d *Domain) fitsMemory() error {
	if d.Memory == 0 || d.Guarantee <= d.Memory {
		return nil
	}
	return mustBe("at most memory, %q, which is all that the domain may have", d.Memory)
}

// fitsReserve returns an error if a value that the reserve needs is missing.
func (d *Domain) fitsReserve() error {
	switch {
	case d.Reserve != "pe" && d.Reserve != "ae":
		return nil
	case d.ReserveCost <= 0 || d.ReserveCost > d.ReservePeriod:
		return mustBe("\"none\" or \"background\", unless reserve_cost, %q, is more than 0 and at most reserve_period, %q", shortest(d.ReserveCost), shortest(d.ReservePeriod))
	case d.Throughput:
		return mustBe("\"none\" or \"background\" with throughput: a reserve is looked at before each request")
	}
	return nil
}

// HasKey reports whether Set supports a key.
func (d *Domain) HasKey(key string) bool { return slices.Contains(keysOf(d.templateFields()), key) }

// SettingKeys returns the keys that Domain.Set supports.
func SettingKeys() []string { return keysOf(new(Domain).templateFields()) }

// Get returns the value of a key as spelled in the file, or "" for an unknown key.
func (d *Domain) Get(key string) string { return getField(d.templateFields(), key) }

// Get returns the value of a key as spelled in the file, or "" for an unknown key.
func (a *Accelerator) Get(key string) string { return getField(a.fields(Options{}), key) }

func getField(fields []field, key string) string {
	i := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
	if i < 0 {
		return ""
	}
	return fields[i].value.String()
}

// Following returns next as far as a running accelerator can adopt it.
func (a Accelerator) Following(next Accelerator) Accelerator {
	next.Name, next.Type, next.Device, next.Library = a.Name, a.Type, a.Device, a.Library
	next.Cores, next.Memory, next.Swap, next.Change, next.Context = a.Cores, a.Memory, a.Swap, a.Change, a.Context
	return next
}

// Get returns the value of a key as spelled in the file, or "" for an unknown key.
func (d *Daemon) Get(key string) string { return getField(d.fields(), key) }

// Set changes one key from plain text, as in `pegasus log debug`.
func (d *Daemon) Set(key, text string) error { return setField(d.fields(), key, text, hot) }

// Following returns next as far as a running daemon can adopt it.
func (d Daemon) Following(next Daemon) Daemon {
	d.LogLevel, d.WorkerPool, d.Specification, d.UndeclaredDomains = next.LogLevel, next.WorkerPool, next.Specification, next.UndeclaredDomains
	return d
}

// setField changes a field. With only = hot it refuses keys that require a restart.
func setField(fields []field, key, text string, only applies) error {
	i := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
	if i < 0 {
		return fmt.Errorf("%s: %w", key, unknown(key, "key", keysOf(fields)))
	}
	f := fields[i]
	if f.when == restart && only == hot {
		return fmt.Errorf("%s: can't change while the daemon runs", key)
	}
	if len(text) > mostValue {
		return fmt.Errorf("%s: must be at most %d bytes", key, mostValue)
	}
	if err := f.value.set(guess(text)); err != nil {
		if f.value.set(text) == nil { // for example a name made of digits
			return nil
		}
		return wrong(key, text, err)
	}
	return nil
}

// mostValue bounds the text of a value, which the daemon keeps.
const mostValue = 256

// guess converts text to the type that it would have in a file.
func guess(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(text); err == nil && (text == "true" || text == "false") {
		return b
	}
	return text
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}
