package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/backend/sched"
	"pegasus/backend/workers"
	"pegasus/configs"
)

func (d *Daemon) openAccelerators(left []*workers.Survivor) error {
	dir := filepath.Join(d.opt.RuntimeDir, "engines")
	there, _ := os.ReadDir(dir)
	for _, f := range there {
		if !slices.ContainsFunc(d.opt.Config.Accelerators, func(c configs.Accelerator) bool { return c.Name == f.Name() }) {
			os.RemoveAll(filepath.Join(dir, f.Name()))
		}
	}
	for _, c := range d.opt.Config.Accelerators {
		hw, bell, err := d.openHardware(c, left)
		if err != nil {
			return fmt.Errorf("accelerator %q: %w", c.Name, err)
		}
		profile := hw.Profile()
		if c.Change, c.Context = profile.Change, configs.Size(profile.Context); c.Change > 0 || c.Context > 0 {
			d.log.Info("measured what processes' contexts cost", "accelerator", c.Name, "change", c.Change, "bytes", profile.Context)
		}
		o := sched.Options{Settings: c, Hardware: hw, Bell: bell, Follow: d.follower.Window,
			Expel: d.guests.Expel, Log: d.log.With("accelerator", c.Name)}
		if d.opt.CPUs != nil {
			o.Sample = d.sampler.Sample
		}
		a, err := sched.New(o)
		if err != nil {
			return errors.Join(fmt.Errorf("accelerator %q: %w", c.Name, err), hw.Close(), bell.Free())
		}
		d.accelerators = append(d.accelerators, a)
	}
	return nil
}

// inventory returns a list of the accelerators, for people.
func (d *Daemon) inventory() string {
	var all []string
	for _, a := range d.accelerators {
		all = append(all, fmt.Sprintf("%s (%s)", a.Name, a.Hardware.Profile().Device))
	}
	return strings.Join(all, ", ")
}

// openHardware takes over the files that a previous daemon's workers still use, or opens the accelerator anew if there
// are none.
func (d *Daemon) openHardware(c configs.Accelerator, left []*workers.Survivor) (hardware.Accelerator, *gate.Bell, error) {
	files, bellFile := workers.Shared(left, c.Name)
	dir := ""
	if !d.opt.Private {
		dir = filepath.Join(d.opt.RuntimeDir, "engines", c.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, err
		}
	}
	hw, err := d.opt.Hardware(c, dir, files)
	if err != nil {
		return nil, nil, err
	}
	if got := hw.Profile().Memory; len(files) > 0 && c.Memory != 0 && got != uint64(c.Memory) {
		d.log.Warn("memory stays what it was while guests from before run", "accelerator", c.Name,
			"memory", configs.Size(got), "configured", c.Memory)
	}
	var bell *gate.Bell
	if bellFile != nil {
		bell, err = gate.OpenBell(bellFile)
	} else {
		bell, err = gate.NewBell()
	}
	if err != nil {
		return nil, nil, errors.Join(err, hw.Close())
	}
	return hw, bell, nil
}
