package configs

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Promise is an entry of a specification file, with the keys of a [[domain]].
type Promise struct {
	Priority      int
	Throughput    bool
	Reserve       string
	ReserveCost   time.Duration
	ReservePeriod time.Duration
	ReserveName   string
}

// mostWarnings bounds the warnings about one file.
const mostWarnings = 20

// specification reads the file of promises that [daemon] names. A wrong entry promises nothing and gives a
// warning; a file that can't be read is an error.
func (p *parser) specification(c *Config, t table) {
	path := c.Daemon.Specification
	if path == "" || p.opt.Specification == nil {
		return
	}
	text, err := readSmall(path)
	if err != nil {
		p.fail(t, "specification", path, err)
		return
	}
	promises, wrong := p.opt.Specification(text)
	c.Promises = promises
	for i, err := range wrong {
		if i == mostWarnings {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s: and %d more", path, len(wrong)-i))
			break
		}
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s: %v: the entry is left out", path, err))
	}
}

// readSmall reads a file written by people.
func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("can't be read: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return "", mustBe("a file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("can't be read: %w", err)
	}
	if len(text) > maxFile {
		return "", mustBe("no longer than %v", Size(maxFile))
	}
	return string(text), nil
}

// promised returns the template for a domain of that name, with its promises in the specification. With a
// specification, a domain that it does not name is in the background.
func (c *Config) promised(name string) Domain {
	d := c.Template
	if c.Promises == nil {
		return d
	}
	e, ok := c.Promises[name]
	if !ok {
		e = Promise{Reserve: "background"}
	}
	d.Priority, d.Throughput = e.Priority, e.Throughput
	d.Reserve, d.ReserveCost, d.ReservePeriod, d.ReserveName = e.Reserve, e.ReserveCost, e.ReservePeriod, e.ReserveName
	return d
}
