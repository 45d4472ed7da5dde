package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"pegasus/internal/fleet"
)

// showFleet becomes pegasus-fleet, which has the client of Kubernetes that this program does without.
func showFleet(c *call) action {
	o := fleet.Flags(c.flags)
	return c.takes(0, 0, func([]string) error {
		if c.given("runtime-dir") {
			return usagef("--runtime-dir: the command reads the cluster, not a daemon of this host")
		}
		if err := o.Check(c.given); err != nil {
			return usagef("%v", err)
		}
		program, err := findFleet()
		if err != nil {
			return err
		}
		args := []string{fleet.Program}
		c.flags.VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				args = append(args, "--"+f.Name+"="+f.Value.String())
			}
		})
		return fmt.Errorf("%s: %w", program, syscall.Exec(program, args, os.Environ()))
	})
}

// findFleet returns the path of pegasus-fleet: beside this command, as `make cluster` builds it, or in PATH.
func findFleet() (string, error) {
	dir := ownDir()
	for _, path := range []string{filepath.Join(dir, fleet.Program), filepath.Join(dir, "..", "cluster", fleet.Program)} {
		if dir != "" && executable(path) {
			return path, nil
		}
	}
	path, err := exec.LookPath(fleet.Program)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this command nor in PATH: build it with `make cluster`, and copy build/cluster/%s into a directory of PATH", fleet.Program, fleet.Program)
	}
	return path, nil
}
