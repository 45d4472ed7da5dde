package main

import (
	"context"
	"errors"
	"net"

	"github.com/rogpeppe/go-internal/testscript"

	"pegasus/xenstore"
	"pegasus/xenstore/memory"
)

// startStore gives a script a XenStore of its own, at the path in XENSTORED_PATH.
func startStore(e *testscript.Env, path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	s := memory.New(memory.Options{})
	go s.Serve(l)
	e.Defer(func() {
		l.Close()
		s.Close()
	})
	e.Setenv("XENSTORED_PATH", path)
	e.Values["store"] = s
	return nil
}

// tellStore runs the commands of a host's tools: xenstore write PATH VALUE, xenstore close.
func tellStore(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value("store").(*memory.Server)
	if len(args) == 1 && args[0] == "close" {
		s.Close()
		return
	}
	if len(args) != 3 || args[0] != "write" {
		ts.Fatalf("usage: xenstore write PATH VALUE | close")
	}
	ctx := context.Background()
	c, err := xenstore.Dial(ctx, s.Domain(0))
	ts.Check(err)
	err = errors.Join(c.Write(ctx, args[1], []byte(args[2])), c.Close())
	ts.Check(err)
}
