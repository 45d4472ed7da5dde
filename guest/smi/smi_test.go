package smi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pegasus/cuda"
)

func example() []state {
	s := state{
		count:   1,
		device:  cuda.Device{Name: "An accelerator with a name that is longer than the column for it"},
		usage:   cuda.DomainUsage{MemoryUsed: 3 << 20, MemoryQuota: 64 << 20, Processes: []cuda.ProcessUsage{{PID: 4294967295, Memory: 3 << 20}}},
		version: 12040, driver: "550.54.14", percent: 100,
	}
	return []state{s}
}

// Scripts split the table by its columns: all lines have the same width, and the borders are aligned.
func TestTable(t *testing.T) {
	var out strings.Builder
	table(&out, example())
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); line != "" && strings.ContainsAny(line[:1], "+|") && n != 91 {
			t.Errorf("%d wide: %s", n, line)
		}
	}
	for _, want := range []string{"Driver Version: 550.54.14", "CUDA Version: 12.4 ", "3MiB / 64MiB", "100%", "4294967295      C   - "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestQueries(t *testing.T) {
	for _, c := range []struct{ query, format, want string }{
		{"memory.used,memory.total", "csv", "memory.used [MiB], memory.total [MiB]\n3 MiB, 64 MiB\n"},
		{"index, utilization.gpu", "csv,noheader", "0, 100 %\n"},
		{"utilization.gpu,power.draw,driver_version", "csv,noheader,nounits", "100, [N/A], 550.54.14\n"},
		{"colour", "csv", "error"},
		{"memory.used,memory", "csv", "error"},
		{"name", "xml", "error"},
		{"name", "csv,nothing", "error"},
		{"name,", "csv", "error"},
		{"count", "", "count\n1\n"},
	} {
		fields, err := parse(Options{Query: c.query, Format: c.format})
		if err != nil {
			if c.want != "error" {
				t.Errorf("%s %s: %v", c.query, c.format, err)
			}
			continue
		}
		var out strings.Builder
		csv(&out, example(), fields, c.format)
		if out.String() != c.want {
			t.Errorf("%s %s: %q, want %q", c.query, c.format, &out, c.want)
		}
	}
}

// Options of which one would have no effect are refused.
func TestOptionsTogether(t *testing.T) {
	for _, o := range []Options{{Format: "csv"}, {List: true, Query: "name"}, {List: true, Format: "csv"}} {
		if fields, err := parse(o); err == nil {
			t.Errorf("%+v: got fields %v and no error, want an error", o, fields)
		}
	}
	for _, o := range []Options{{}, {List: true}} {
		if fields, err := parse(o); err != nil || fields != nil {
			t.Errorf("%+v: got fields %v, error %v, want neither", o, fields, err)
		}
	}
}
