package kvm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/bell"
)

// FindPort is the device by which agent and hub of the machine at root wake each other. Without udev only the
// kernel's own name of it exists.
func FindPort(root string) (string, error) {
	return findPort(filepath.Join(root, "sys/class/virtio-ports"))
}

func findPort(class string) (string, error) {
	names, err := filepath.Glob(filepath.Join(class, "*/name"))
	if err != nil {
		return "", err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(name)) == bell.Name {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(path))), nil
		}
	}
	return "", fmt.Errorf("this machine has no virtio-serial port %s", bell.Name)
}

// listenAtPort has the hub wake the agent, if the machine has a port, and the other way round.
func (a Agent) listenAtPort(ctx context.Context) *bell.Port {
	open := func() (bell.Conn, error) {
		path, err := FindPort("/")
		if err != nil {
			return nil, err
		}
		return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	}
	return bell.Listen(ctx, open, false, func(err error) {
		if err != nil {
			a.Log.Info("nothing wakes us: we look every few milliseconds", "why", err)
		} else {
			a.Log.Info("the host wakes us")
		}
	})
}
