package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/xenstore"
	"pegasus/xenstore/memory"
)

// The program prints each case's outcome, and their numbers.
func TestRun(t *testing.T) {
	s := memory.New(memory.Options{})
	t.Cleanup(s.Close)
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go s.Serve(l)

	for _, test := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--socket", socket, "--dom", "0"}, 0, []string{"ok socket: a value is any bytes (", "none socket: a guest has its home (for who can be other domains)", "end: "}},
		{[]string{"--socket", socket, "--dom", "0", "--run", "^counters"}, 0, []string{"ok socket: counters lose nothing", "end: 1 ok, 0 failed, 0 not"}},
		{[]string{"--socket", socket, "--dom", "7", "--run", "come in the order"}, 0, []string{"end: 1 ok"}}, // though the domain isn't 7
		{[]string{"--socket", socket, "--dom", "7", "--run", "^relative paths"}, 1, []string{"FAIL socket: relative paths: ", "end: 0 ok, 1 failed"}},
		{[]string{"--socket", socket, "--run", "x"}, 2, []string{"say --dom N"}},
		{[]string{"--socket", socket, "--dom", "0", "--run", "no such case"}, 2, []string{"nothing was tried"}},
		{[]string{"--socket", socket + "x"}, 2, []string{"no such file"}},
		{[]string{"--run", "("}, 2, []string{"--run"}},
		{[]string{"--nothing"}, 2, []string{"nothing"}},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), test.args, &out, &out); code != test.code {
			t.Errorf("%v: exit status %d, wanted %d\n%s", test.args, code, test.code, &out)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: wanted %q in\n%s", test.args, want, &out)
			}
		}
	}
	c, err := xenstore.Dial(t.Context(), s.Domain(0))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Write(t.Context(), "/local/domain/0/domid", []byte("0")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--socket", socket, "--run", "^relative"}, &out, &out); code != 0 {
		t.Errorf("exit status %d\n%s", code, &out)
	}
}
