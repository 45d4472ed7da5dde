// Package parameters reads the opaque configuration of claims and device classes: the settings of a domain beyond the
// capacities that the scheduler counts.
//
// Callers: package claims.
//
// Trust boundary: the configuration of a claim is written by any user of a namespace, that of a class by an
// administrator. A field that is unknown, misspelled, repeated, of a wrong type or out of range is an error that names
// the field; so is a field of administrators in a claim.
package parameters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"pegasus/configs"
)

// APIVersion and Kind are the type of the configuration.
const (
	APIVersion = "pegasus.dev/v1"
	Kind       = "DomainConfig"
)

// Source is the author of a configuration.
type Source string

// The sources of configurations.
const (
	Class Source = "class" // an administrator
	Claim Source = "claim" // any user of a namespace
)

// field is a field of the configuration, which has the meaning of a key of [[domain]].
type field struct {
	key   string // of the daemon's configuration
	class bool   // only an administrator may give it
	read  func(json.RawMessage) (string, error)
}

var fields = map[string]field{
	"slo":             {"slo", false, whole},
	"sloWaitP99":      {"slo_wait_p99", false, text},
	"sloRate":         {"slo_rate", false, whole},
	"sloWindow":       {"slo_window", false, text},
	"priority":        {"priority", false, whole},
	"period":          {"period", false, text},
	"deadline":        {"deadline", false, text},
	"interactive":     {"interactive", false, boolean},
	"memoryGuarantee": {"memory_guarantee", false, quantity},

	"arena":       {"arena", true, quantity},
	"bandwidth":   {"bandwidth", true, whole},
	"cpu":         {"cpu", true, text},
	"group":       {"group", true, text},
	"hostMemory":  {"host_memory", true, quantity},
	"memoryQuota": {"memory", true, quantity},
	"processes":   {"processes", true, whole},
	"throughput":  {"throughput", true, boolean},
}

// Fields returns the names of all fields of a source, sorted.
func Fields(from Source) (names []string) {
	for name, f := range fields {
		if from == Class || !f.class {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Read returns the settings of a configuration, spelled as in the daemon's configuration. The error joins all mistakes.
func Read(raw []byte, from Source) (map[string]string, error) {
	object, err := members(raw)
	if err != nil {
		return nil, wrong(from, err)
	}
	settings := map[string]string{}
	mistakes := []error{constant(object, "apiVersion", APIVersion), constant(object, "kind", Kind)}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if name == "apiVersion" || name == "kind" {
			continue
		}
		key, value, err := setting(name, object[name], from)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("field %s: %w", name, err))
			continue
		}
		settings[key] = value
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, wrong(from, err)
	}
	return settings, nil
}

func wrong(from Source, err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ") // an event has one line
	return fmt.Errorf("%s of the %s: %s", Kind, from, text)
}

// setting returns a field as a setting of the daemon's.
func setting(name string, raw json.RawMessage, from Source) (key, value string, err error) {
	f, ok := fields[name]
	switch {
	case !ok:
		return "", "", fmt.Errorf("unknown; want one of %s", strings.Join(Fields(from), ", "))
	case f.class && from != Class:
		return "", "", errors.New("only a DeviceClass may give it; remove it from the claim")
	}
	if value, err = f.read(raw); err != nil {
		return "", "", err
	}
	if err := new(configs.Domain).Give(f.key, value); err != nil {
		rule := err.Error() // with the daemon's name of the field, and its spelling of the value
		if i := strings.LastIndex(rule, ": must be "); i >= 0 {
			rule = rule[i+2:]
		}
		return "", "", fmt.Errorf("%s: %s", raw, rule)
	}
	return f.key, value, nil
}

func constant(object map[string]json.RawMessage, name, want string) error {
	raw, ok := object[name]
	if !ok {
		return fmt.Errorf("field %s: missing; want %q", name, want)
	}
	if got, err := text(raw); err != nil || got != want {
		return fmt.Errorf("field %s: %s: want %q", name, raw, want)
	}
	return nil
}

// members returns the members of a JSON object, of which each may occur once.
func members(raw []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	object := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := t.(string) // an object's members begin with strings; else Token fails
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
		if _, has := object[name]; has {
			return nil, fmt.Errorf("field %s: given twice", name)
		}
		object[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text behind the JSON object")
	}
	return object, nil
}

func whole(raw json.RawMessage) (string, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return "", fmt.Errorf("%s: must be a whole number", raw)
	}
	return strconv.FormatInt(n, 10), nil
}

func boolean(raw json.RawMessage) (string, error) {
	if s := string(raw); s == "true" || s == "false" {
		return s, nil
	}
	return "", fmt.Errorf("%s: must be true or false", raw)
}

func text(raw json.RawMessage) (s string, err error) {
	if err := json.Unmarshal(raw, &s); err != nil || raw[0] != '"' {
		return "", fmt.Errorf("%s: must be a string", raw)
	}
	return s, nil
}

// quantity returns the bytes of a quantity of Kubernetes, such as "256Mi".
func quantity(raw json.RawMessage) (string, error) {
	s, err := text(raw)
	if err != nil {
		return "", fmt.Errorf("%s: must be a quantity in quotes, such as \"256Mi\"", raw)
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return "", fmt.Errorf("%s: must be a quantity, such as \"256Mi\"", raw)
	}
	n, exact := q.AsInt64()
	if !exact || n < 0 {
		return "", fmt.Errorf("%s: must be a whole number of bytes", raw)
	}
	return strconv.FormatInt(n, 10), nil
}
