package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor/kvm"
	"pegasus/hypervisor/libvirt"
)

// fakeLibvirt is a pegasus-libvirt for scripts: a machine's definition is the file NAME.xml, and it runs if
// there is NAME.live, its running definition; it is transient if there is NAME.transient, and was saved if
// NAME.saved. With NAME.full it accepts no device while it runs.
func fakeLibvirt(args []string) int {
	err := func() error {
		name := args[len(args)-1]
		switch args[0] {
		case "plug":
			device, err := io.ReadAll(os.Stdin)
			if err == nil {
				err = plugged(name, string(device), "")
			}
			if err != nil {
				return err
			}
		case "unplug":
			alias := name
			name = args[len(args)-2]
			if err := plugged(name, "", alias); err != nil {
				return err
			}
		case "define":
			text, err := io.ReadAll(os.Stdin)
			if err != nil {
				return err
			}
			d, err := kvm.Parse(text)
			if err != nil {
				return err
			}
			name = d.Name
			if err := os.WriteFile(name+".xml", text, 0o644); err != nil {
				return err
			}
		}
		text, err := os.ReadFile(name + ".xml")
		if err != nil {
			return fmt.Errorf("Domain not found: no domain with matching name '%s'", strings.TrimSuffix(name, ".xml"))
		}
		s := libvirt.Shown{Definition: string(text)}
		live, err := os.ReadFile(name + ".live")
		s.Runs, s.Live = err == nil, string(live)
		_, err = os.Stat(name + ".saved")
		s.Saved = err == nil
		_, err = os.Stat(name + ".transient")
		s.Lasting = err != nil
		return json.NewEncoder(os.Stdout).Encode(s)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// plugged changes a machine's running definition: it adds a device, or removes the one of an alias.
func plugged(name, device, alias string) error {
	if _, err := os.Stat(name + ".full"); err == nil && strings.HasPrefix(device, "<shmem") {
		return errors.New("No more available PCI slots")
	}
	text, err := os.ReadFile(name + ".live")
	if err != nil {
		return errors.New("domain is not running")
	}
	live := strings.Replace(string(text), "</devices>", device+"</devices>", 1)
	if alias != "" {
		at := strings.Index(live, "<alias name='"+alias+"'/>")
		if at < 0 {
			return fmt.Errorf("no device found with alias '%s'", alias)
		}
		from := max(strings.LastIndex(live[:at], "<shmem"), strings.LastIndex(live[:at], "<channel"))
		to := at + strings.IndexByte(live[at:], '\n') + 1
		to += strings.IndexByte(live[to:], '>') + 1
		live = live[:from] + live[to:]
	}
	return os.WriteFile(name+".live", []byte(live), 0o644)
}

// fakeQEMU is a running machine as far as its region is concerned: it makes a file of another name when it
// has it.
func fakeQEMU() {
	f, err := os.Open(os.Args[1])
	if err == nil {
		_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err == nil {
		err = os.WriteFile(os.Args[2], nil, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	time.Sleep(time.Hour)
}

// The wait for an unresponsive libvirt is bounded; its error text is passed on.
func TestAskLibvirt(t *testing.T) {
	for _, c := range []struct {
		patience     time.Duration
		script, want string
	}{
		{200 * time.Millisecond, "sleep 600", "no answer for 200ms"},
		{time.Minute, "echo no such >&2; false", "no such"},
		{time.Minute, "exit 3", "exit status 3"},
	} {
		if _, err := askLibvirt(c.patience, "sh", nil, "-c", c.script); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.script, err, c.want)
		}
	}
	if out, err := askLibvirt(time.Minute, "cat", []byte("words")); err != nil || string(out) != "words" {
		t.Errorf("%q, %v", out, err)
	}
}
