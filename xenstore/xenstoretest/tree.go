package xenstoretest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

var valueCases = []Case{
	{Name: "a value is any bytes", check: func(e *env) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for _, value := range []string{"hello", "", string(all), "\x00", "OK\x00"} {
			e.write(e.c, e.path("v"), value)
			e.reads(e.c, e.path("v"), value)
		}
	}},
	{Name: "writing makes what is above", check: func(e *env) {
		e.write(e.c, e.path("a/b/c"), "deep")
		e.reads(e.c, e.path("a/b/c"), "deep")
		e.reads(e.c, e.path("a/b"), "")
		e.lists(e.c, e.path("a"), "b")
	}},
	{Name: "reading what is not there", check: func(e *env) {
		for _, path := range []string{"x", "x/y/z"} {
			e.none(e.c, e.path(path))
			_, err := e.c.List(e.ctx, e.path(path))
			e.fails(err, syscall.ENOENT)
			_, err = e.c.Perms(e.ctx, e.path(path))
			e.fails(err, syscall.ENOENT)
		}
	}},
	needsTools(Case{Name: "the longest value", check: func(e *env) {
		path := e.path("v")
		most := wire.BodyMax - len(path) - 1
		if e.Device {
			most -= wire.HeaderBytes
		}
		value := bytes.Repeat([]byte{'x'}, most+1)
		e.ok(e.c.Write(e.ctx, path, value[:most]))
		e.reads(e.c, path, string(value[:most]))
		e.fails(e.c.Write(e.ctx, path, value), xenstore.ErrTooLong)
		e.reads(e.c, path, string(value[:most]))
	}}),
}

var treeCases = []Case{
	{Name: "making what is there", check: func(e *env) {
		e.write(e.c, e.path("v"), "kept")
		e.ok(e.c.Mkdir(e.ctx, e.path("v")))
		e.reads(e.c, e.path("v"), "kept")
		e.ok(e.c.Mkdir(e.ctx, e.path("a/b")))
		e.reads(e.c, e.path("a/b"), "")
		e.lists(e.c, e.base, "v", "a")
	}},
	{Name: "removing takes all below", check: func(e *env) {
		for _, path := range []string{"a/b/c", "a/b/d", "a/e", "f"} {
			e.write(e.c, e.path(path), path)
		}
		e.ok(e.c.Remove(e.ctx, e.path("a/b")))
		e.none(e.c, e.path("a/b"))
		e.none(e.c, e.path("a/b/c"))
		e.lists(e.c, e.path("a"), "e")
		e.reads(e.c, e.path("f"), "f")
	}},
	{Name: "removing what is not there", check: func(e *env) {
		e.ok(e.c.Remove(e.ctx, e.path("x")))
		e.fails(e.c.Remove(e.ctx, e.path("x/y")), syscall.ENOENT)
	}},
	needsAs(Case{Name: "removing everything", check: func(e *env) {
		e.fails(e.c.Remove(e.ctx, "/"), syscall.EINVAL)
	}}),
	{Name: "children come in the order of their making", check: func(e *env) {
		e.lists(e.c, e.base)
		for _, name := range []string{"b", "a", "C", "1", "-_@"} {
			e.write(e.c, e.path(name), "")
		}
		e.ok(e.c.Remove(e.ctx, e.path("a")))
		e.write(e.c, e.path("a"), "")
		e.lists(e.c, e.base, "b", "C", "1", "-_@", "a")
	}},
	needsTools(Case{Name: "a directory of many packets", check: func(e *env) {
		for _, count := range []int{45, 125} { // 4.5 and 12.5 KB
			want := fill(e, "d", count)
			e.lists(e.c, e.path("d"), want...)
			e.ok(e.c.Update(e.ctx, func(tx *xenstore.Tx) error {
				e.lists(tx, e.path("d"), want...)
				return nil
			}))
		}
	}}),
	needsTools(Case{Name: "a directory at the edge of a packet", check: func(e *env) {
		for _, last := range []int{93, 94, 95, 96, 97, 98} { // 4000 bytes, then up to 4099
			dir := fmt.Sprint("d", last)
			want := fill(e, dir, 40)
			want = append(want, strings.Repeat("x", last))
			e.write(e.c, e.path(dir+"/"+want[40]), "")
			e.lists(e.c, e.path(dir), want...)
		}
	}}),
	needsTools(Case{Name: "a directory that changes while it is read", check: func(e *env) {
		want := fill(e, "d", 125)
		ctx, cancel := context.WithCancel(e.ctx)
		changed := make(chan error, 1)
		go func() {
			var err error
			for i := 0; ctx.Err() == nil && err == nil && i < 300; i++ {
				if err = e.c.Write(e.ctx, e.path("d/extra"), nil); err == nil {
					err = e.c.Remove(e.ctx, e.path("d/extra"))
				}
			}
			changed <- err
		}()
		for range 20 {
			got, err := e.c.List(e.ctx, e.path("d"))
			e.ok(err)
			got = slices.DeleteFunc(got, func(s string) bool { return s == "extra" })
			if !slices.Equal(got, want) {
				e.Errorf("%d children, wanted %d", len(got), len(want))
			}
		}
		cancel()
		e.ok(<-changed)
	}}),
}

// fill creates count children of a directory, each of which takes 100 bytes of its list.
func fill(e *env, dir string, count int) (names []string) {
	e.ok(e.c.Update(e.ctx, func(tx *xenstore.Tx) error {
		names = nil
		for i := range count {
			names = append(names, fmt.Sprintf("n%098d", i))
			if err := tx.Write(e.ctx, e.path(dir+"/"+names[i]), nil); err != nil {
				return err
			}
		}
		return nil
	}))
	return names
}

var pathCases = []Case{
	{Name: "paths that are refused", check: func(e *env) {
		for _, path := range []string{
			"", "/", "x/", "x//y", "x y", "x.y", "x\xffy", "ä", "x:y", "@x", "x\ny", "x\\y",
		} {
			path = e.base + "/" + path
			if path == e.base+"/@x" { // valid as a special path
				path = "@x"
			}
			_, err := e.c.Request(e.ctx, wire.Read, wire.Join(path))
			e.fails(err, syscall.EINVAL)
			_, err = e.c.Request(e.ctx, wire.Write, wire.Join(path))
			e.fails(err, syscall.EINVAL)
			e.fails(e.c.Write(e.ctx, path, nil), syscall.EINVAL) // rejected before sending
		}
		e.fails(e.c.Write(e.ctx, e.path("x\x00y"), nil), syscall.EINVAL)
		e.none(e.c, e.path("x"))
	}},
	needsTools(Case{Name: "the longest path", check: func(e *env) {
		path := e.base
		for len(path)+101 <= wire.RelativeMax {
			path += "/" + strings.Repeat("x", 100)
		}
		path += strings.Repeat("y", wire.RelativeMax-len(path))
		e.write(e.c, path, "deep")
		e.reads(e.c, path, "deep")
		_, err := e.c.Read(e.ctx, path+"y")
		e.fails(err, syscall.EINVAL)
	}}),
	{Name: "relative paths", check: func(e *env) {
		home, err := e.c.DomainPath(e.ctx, e.Dom)
		e.ok(err)
		path := "data/conformance-relative"
		e.write(e.c, path, "here")
		e.removeLater(path)
		e.reads(e.c, path, "here")
		e.reads(e.c, home+"/"+path, "here")
	}},
}
