package cases

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// Device runs cases through the driver API, by the program test/programs/cases.c, which documents the protocol.
type Device struct {
	Name         string
	Major, Minor int // of its capability
	CUDA         int // version of the driver

	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// Start starts the program. If there is no device, the error is the program's message.
func Start(cmd *exec.Cmd) (*Device, error) {
	d := &Device{cmd: cmd}
	cmd.Stderr = &d.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.out = bufio.NewReader(out)
	if d.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if d.Name, err = d.out.ReadString('\n'); err == nil {
		d.Name = strings.TrimSpace(d.Name)
		_, err = fmt.Fscanf(d.out, "%d %d %d\n", &d.Major, &d.Minor, &d.CUDA)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close ends the program and returns its error.
func (d *Device) Close() error {
	d.in.Close()
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(d.stderr.Bytes()))
	}
	return nil
}

// Run runs a case with its module as text and returns CUDA's result.
func (d *Device) Run(c *Case, text string) (result int, buffers [][]byte, err error) {
	fmt.Fprintf(d.in, "%d %d %d %d", c.Threads, len(text), len(c.Values), len(c.Buffers))
	var memory []byte
	for _, b := range c.Buffers {
		fmt.Fprintf(d.in, " %d", len(b.Before))
		memory = append(memory, b.Before...)
	}
	fmt.Fprintf(d.in, "\n%s%s%s", text, c.Values, memory)
	line, err := d.out.ReadString('\n')
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	words := strings.Fields(line)
	if _, err := fmt.Sscan(line, &result); err != nil || len(words) != 1+len(c.Buffers) {
		return 0, nil, fmt.Errorf("%s: the answer is %.100q", c.Name, line)
	}
	for _, w := range words[1:] {
		b, err := hex.DecodeString(w)
		if err != nil {
			return 0, nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		buffers = append(buffers, b)
	}
	return result, buffers, nil
}

// Comparison is the result of running cases on a GPU.
type Comparison struct {
	Same    int
	Free    []string // with other bits, or another end, as permitted
	Unknown []string // too new for the GPU, or its driver
	Wrong   []error
}

// refusals are the results of a driver for PTX that is too new for it, or for the GPU.
var refusals = []int{209, 218, 222}

// Compare runs cases on a GPU, as PTX of its own target. A case that ends the program counts as wrong, and again starts
// another program for the rest.
func (d *Device) Compare(list []Case, again func() (*Device, error)) (r Comparison, err error) {
	for i := range list {
		c := &list[i]
		result, buffers, err := d.Run(c, c.Text(ptxOf(d.CUDA), fmt.Sprintf("sm_%d%d", d.Major, d.Minor)))
		if err != nil {
			r.Wrong = append(r.Wrong, errors.Join(err, d.Close()))
			if d, err = again(); err != nil {
				return r, err
			}
			continue
		}
		if result >= 700 && result < 720 { // a sticky error: the whole process has it from now on
			d.Close()
			if d, err = again(); err != nil {
				return r, err
			}
		}
		r.add(c, result, buffers)
	}
	return r, nil
}

// add counts the result of a case.
func (r *Comparison) add(c *Case, result int, buffers [][]byte) {
	wrong := fmt.Errorf("%s: result %d", c.Name, result)
	if result == 0 {
		wrong = c.Check(buffers)
	}
	switch {
	case slices.Contains(refusals, result):
		r.Unknown = append(r.Unknown, c.Name)
	case wrong == nil:
		r.Same++
	case c.open || result == 0 && c.mayDiffer():
		r.Free = append(r.Free, c.Name)
	default:
		r.Wrong = append(r.Wrong, wrong)
	}
}

// mayDiffer reports whether two devices may give different bits.
func (c *Case) mayDiffer() bool {
	return c.open || strings.Contains(c.Tested, ".approx") || strings.Contains(c.Tested, ".full")
}

// ptxOf returns the newest PTX version that a driver of a CUDA version supports, from 11.0 on.
func ptxOf(cuda int) string {
	major, minor := cuda/1000, cuda%1000/10
	if major == 12 && minor >= 6 {
		minor-- // 12.6 has that of 12.5
	}
	return fmt.Sprintf("%d.%d", major-4, minor)
}
