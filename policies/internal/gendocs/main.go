// Gendocs writes the parts of documents that follow from the registered policies: the tables of policies and of
// parameters and the policies with accounts in docs/policies.md, and the parameters in configs/examples/full.toml. Each part stands between two
// lines that contain "generated: NAME" and "generated: end".
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pegasus/policies"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: gendocs ROOT")
	}
	for _, part := range []struct {
		file, name string
		write      func() string
	}{
		{"docs/policies.md", "policies", policyTable},
		{"docs/policies.md", "parameters", parameterTable},
		{"docs/policies.md", "accounts", accountKeepers},
		{"configs/examples/full.toml", "parameters", parameterKeys},
	} {
		path := filepath.Join(os.Args[1], part.file)
		if err := replace(path, part.name, part.write()); err != nil {
			log.Fatalf("gendocs: write %s: %v", path, err)
		}
	}
}

// replace writes the part of a file of that name anew.
func replace(path, name, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(old, []byte("generated: "+name))
	line, rest, _ := bytes.Cut(rest, []byte("\n"))
	_, after, closed := bytes.Cut(rest, []byte("generated: end"))
	if !ok || !closed {
		return fmt.Errorf(`no lines with "generated: %s" and "generated: end"`, name)
	}
	opening := rest[:bytes.Index(rest, []byte("generated: end"))]
	end := opening[bytes.LastIndexByte(opening, '\n')+1:] // what begins a comment
	out := slices.Concat(before, []byte("generated: "+name), line, []byte("\n"+text), end, []byte("generated: end"), after)
	if bytes.Equal(out, old) {
		return nil
	}
	return os.WriteFile(path, out, 0o644)
}

func policyTable() string {
	var b strings.Builder
	b.WriteString("\n| policy | which domain may submit | a domain's part of the time |\n|---|---|---|\n")
	for _, s := range policies.Specs() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, s.Serves, s.Part)
	}
	b.WriteString("\n")
	return b.String()
}

// accountKeepers returns a paragraph that names the policies that keep accounts of time, and the others.
func accountKeepers() string {
	var keep, others []string
	for _, s := range policies.Specs() {
		if l, ok := s.New(policies.Defaults(policies.Production)).(policies.Ledger); ok && l.Keeps() {
			keep = append(keep, "`"+s.Name+"`")
		} else {
			others = append(others, "`"+s.Name+"`")
		}
	}
	return "\n" + wrap(list(keep)+" keep accounts in production mode. "+list(others)+
		" keep none, since their choice does not depend on earlier use. Paper mode keeps none, as published.") + "\n"
}

// list joins at least two words.
func list(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// wrap breaks a paragraph into lines of at most 100 columns.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case column == 0:
		case column+1+len(word) > 100:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}

func parameterTable() string {
	var b strings.Builder
	b.WriteString("\n| key | default | range | used by | meaning |\n|---|---|---|---|---|\n")
	for _, p := range policies.Params() {
		users := "reserves"
		if names := usersOf(p); len(names) > 0 {
			users = "`" + strings.Join(names, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", p.Key, value(p, p.Default), span(p), users, meaning(p))
	}
	b.WriteString("\n")
	return b.String()
}

// usersOf returns the names of the policies that list a parameter.
func usersOf(p *policies.Param) (names []string) {
	for _, s := range policies.Specs() {
		if slices.Contains(s.Params, p) {
			names = append(names, s.Name)
		}
	}
	return names
}

func meaning(p *policies.Param) string {
	if p.Zero == "" {
		return p.Doc
	}
	return p.Doc + "; 0: " + p.Zero
}

func span(p *policies.Param) string {
	switch p.Kind {
	case policies.Flag:
		return ""
	case policies.Word:
		return "`" + strings.Join(p.Words, "`, `") + "`"
	}
	return value(p, p.Min) + " – " + value(p, p.Max)
}

// value returns a parameter's value for people.
func value(p *policies.Param, n int64) string {
	switch {
	case p.Kind == policies.Flag:
		return fmt.Sprint(n != 0)
	case p.Kind == policies.Word:
		return "`" + p.Words[n] + "`"
	case p.Kind == policies.Count && p.Unit != "":
		return fmt.Sprintf("%d %s", n, p.Unit)
	case p.Kind == policies.Count || n == 0:
		return fmt.Sprint(n)
	}
	text := time.Duration(n).String()
	unit := strings.TrimLeft(text, "0123456789.")
	return strings.TrimSuffix(text, unit) + " " + unit
}

// parameterKeys returns the keys with their defaults, as lines of a configuration.
func parameterKeys() string {
	all := policies.Params()
	wide := 0
	for _, p := range all {
		wide = max(wide, len(p.Key))
	}
	var b strings.Builder
	for _, p := range all {
		users := "reserves"
		if names := usersOf(p); len(names) > 0 {
			users = strings.Join(names, ", ")
		}
		fmt.Fprintf(&b, "%-*s = %-8s # %s: %s\n", wide, p.Key, key(p, p.Default), users, meaning(p)+bounds(p))
	}
	return b.String()
}

// bounds returns the allowed values, if they need to be listed.
func bounds(p *policies.Param) string {
	switch p.Kind {
	case policies.Duration, policies.Count:
		return fmt.Sprintf(" (%s to %s)", strings.Trim(key(p, p.Min), `"`), strings.Trim(key(p, p.Max), `"`))
	}
	return ""
}

// key returns a value as spelled in TOML.
func key(p *policies.Param, n int64) string {
	switch p.Kind {
	case policies.Flag:
		return fmt.Sprint(n != 0)
	case policies.Word:
		return fmt.Sprintf("%q", p.Words[n])
	case policies.Duration:
		return `"` + strings.ReplaceAll(time.Duration(n).String(), "µ", "u") + `"`
	}
	return fmt.Sprint(n)
}
