package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// step is one experiment.
type step struct {
	name  string
	about string
	limit time.Duration
	run   func(context.Context, *visit) (any, error)
}

// visit is one command's run.
type visit struct {
	command   string
	folder    string // the folder brought to this machine
	out       string
	driver    string // NVIDIA's libcuda.so.1, or its substitute
	device    string // one-line description
	cuda      int    // the driver's CUDA version
	libraries string // a folder of other libraries for the steps' programs
	rehearsal bool
	policies  []string // to compare
	say       io.Writer

	record *record
	log    *os.File
	dir    string // for sockets and other temporary files; removed at the end
	gpu    *daemon
}

// errSkip is the reason why a step cannot run here, which is no failure.
type errSkip string

func (e errSkip) Error() string { return string(e) }

func skip(format string, args ...any) error { return errSkip(fmt.Sprintf(format, args...)) }

func (v *visit) begin() (err error) {
	if err := os.MkdirAll(v.out, 0o755); err != nil {
		return err
	}
	if v.out, err = filepath.Abs(v.out); err != nil {
		return err
	}
	if v.log, err = os.OpenFile(v.file(".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	if v.dir, err = os.MkdirTemp("", "pv"); err != nil { // short: socket paths are at most 107 bytes
		return err
	}
	if err := os.Chmod(v.dir, 0o755); err != nil { // workers run as other users
		return err
	}
	if v.rehearsal {
		err = v.startGPU()
	} else {
		err = v.findDriver()
	}
	if err != nil {
		v.end()
		return err
	}
	v.device, v.cuda = v.lookAt()
	v.record, err = openRecord(v)
	return err
}

func (v *visit) end() {
	if v.gpu != nil {
		v.gpu.stop()
	}
	os.RemoveAll(v.dir)
	v.log.Close()
}

func (v *visit) file(ending string) string { return filepath.Join(v.out, v.command+ending) }

// in returns a path within the folder brought to this machine.
func (v *visit) in(name ...string) string {
	return filepath.Join(append([]string{v.folder}, name...)...)
}

// patience returns the time limit for an operation that takes at most d on a device: longer in a
// rehearsal, since its machine may be slow and have other load.
func (v *visit) patience(d time.Duration) time.Duration {
	if v.rehearsal {
		return 5 * d
	}
	return d
}

// size returns a number for the device, and another for a rehearsal.
func (v *visit) size(device, rehearsal int) string {
	if v.rehearsal {
		return fmt.Sprint(rehearsal)
	}
	return fmt.Sprint(device)
}

// do runs the steps that were not done before, one after the other.
func (v *visit) do(ctx context.Context, steps []step) error {
	failed := 0
	for _, s := range steps {
		if v.record.has(s.name) {
			continue
		}
		o := v.try(ctx, s)
		fmt.Fprintf(v.say, "%-24s %-8s %6.1f s  %s\n", o.Step, o.State, o.Seconds, o.Why)
		if o.State == stateFailed {
			failed++
		}
		if err := v.record.add(o); err != nil {
			return err
		}
	}
	if failed > 0 {
		fmt.Fprintf(v.say, "%d steps failed: see %s\n", failed, v.file(".md"))
	}
	return nil
}

// try runs a step within its time limit.
func (v *visit) try(ctx context.Context, s step) outcome {
	o := outcome{Step: s.name, About: s.about}
	end, _ := ctx.Deadline()
	if left := time.Until(end); left < s.limit/4 || ctx.Err() != nil {
		o.State, o.Why = stateLater, fmt.Sprintf("it may take %v, and %v are left: run this command again with the same --out", s.limit, max(left, 0).Round(time.Second))
		return o
	}
	fmt.Fprintf(v.log, "\n--- %s: %s\n", s.name, s.about)
	before := kernelLog()
	began := time.Now()
	inTime, cancel := context.WithTimeout(ctx, v.patience(s.limit))
	defer cancel()
	data, err := s.run(inTime, v)
	o.Seconds, o.Data = time.Since(began).Seconds(), data
	o.Denied = denied(before, kernelLog())
	var why errSkip
	switch {
	case err == nil:
		o.State = stateDone
	case errors.As(err, &why):
		o.State, o.Why = stateSkipped, string(why)
	default:
		o.State, o.Why = stateFailed, strings.TrimSpace(err.Error())
	}
	return o
}
