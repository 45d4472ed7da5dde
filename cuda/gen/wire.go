package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// op is one wire operation.
type op struct {
	Num    int
	Name   string
	Class  string
	Reply  string
	Doc    string
	Args   record
	Result record
}

// record is a fixed part, laid out like a C compiler's structure, and optionally bytes after it.
type record struct {
	Fields []wireField
	Bytes  string // name of the trailing bytes, or empty
	Size   int    // of the fixed part, padded to its alignment
}

func (r record) empty() bool { return len(r.Fields) == 0 && r.Bytes == "" }

// wireField is one field of a record.
type wireField struct {
	Name   string
	Kind   wireKind
	Count  int // of an array, or 0
	Offset int
}

func (f wireField) elements() int { return max(f.Count, 1) }

// wireKind is a scalar of the wire.
type wireKind struct {
	Name  string
	Bytes int
	Go, C string
}

var wireKinds = map[string]wireKind{
	"u8":  {"u8", 1, "uint8", "uint8_t"},
	"u16": {"u16", 2, "uint16", "uint16_t"},
	"u32": {"u32", 4, "uint32", "uint32_t"},
	"i32": {"i32", 4, "int32", "int32_t"},
	"u64": {"u64", 8, "uint64", "uint64_t"},
	"i64": {"i64", 8, "int64", "int64_t"},
	"f32": {"f32", 4, "float32", "float"},
}

func loadWire(path string) ([]*op, error) {
	var file struct {
		Version int
		Op      []struct {
			Num          int
			Name, Class  string
			Reply, Doc   string
			Args, Result []string
		}
	}
	if err := readTOML(path, &file); err != nil {
		return nil, err
	}
	var ops []*op
	last := 0
	for _, f := range file.Op {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s: operation %s: %s", path, f.Name, fmt.Sprintf(format, args...))
		}
		if f.Num <= last {
			return nil, fail("number %d comes after %d: the list is append-only", f.Num, last)
		}
		last = f.Num
		if !strings.Contains(" control copy compute wait ", " "+f.Class+" ") {
			return nil, fail("class %q", f.Class)
		}
		if !strings.Contains(" always never either ", " "+f.Reply+" ") {
			return nil, fail("reply %q", f.Reply)
		}
		o := &op{Num: f.Num, Name: f.Name, Class: f.Class, Reply: f.Reply, Doc: strings.Join(strings.Fields(f.Doc), " ")}
		var err error
		if o.Args, err = layOut(f.Args); err != nil {
			return nil, fail("args: %v", err)
		}
		if o.Result, err = layOut(f.Result); err != nil {
			return nil, fail("result: %v", err)
		}
		ops = append(ops, o)
	}
	return ops, nil
}

var fieldForm = regexp.MustCompile(`^([a-z]+[0-9]*)(?:\[([0-9]+)\])? ([a-z][A-Za-z0-9]*)$`)

func layOut(decls []string) (record, error) {
	var r record
	at, align := 0, 1
	for i, decl := range decls {
		m := fieldForm.FindStringSubmatch(decl)
		if m == nil {
			return r, fmt.Errorf("field %q: want \"type name\"", decl)
		}
		if m[1] == "bytes" {
			if i != len(decls)-1 {
				return r, fmt.Errorf("%q is not the last field", decl)
			}
			r.Bytes = m[3]
			break
		}
		k, ok := wireKinds[m[1]]
		if !ok {
			return r, fmt.Errorf("field %q: unknown type", decl)
		}
		f := wireField{Name: m[3], Kind: k}
		if m[2] != "" {
			f.Count, _ = strconv.Atoi(m[2])
		}
		at = alignUp(at, k.Bytes)
		f.Offset = at
		at += k.Bytes * f.elements()
		align = max(align, k.Bytes)
		r.Fields = append(r.Fields, f)
	}
	r.Size = alignUp(at, align)
	return r, nil
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }

// title returns the exported Go name of a field.
func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// snake returns the C name of an operation.
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
