package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
)

// demoDomain is one domain of the demonstration.
type demoDomain struct {
	name    string
	credits int
}

var demoDomains = []demoDomain{{"small", 256}, {"medium", 512}, {"large", 1024}}

// demoVideo is the fourth, with the clip.
var demoVideo = demoDomain{"video", 512}

const demoConfig = `[[accelerator]]
name = "soft0"
policy = %q
tick = "10ms"
[[domain]]
name = "small"
credits = 256
[[domain]]
name = "medium"
credits = 512
[[domain]]
name = "large"
credits = 1024
[[domain]]
name = "video"
credits = 512
`

// demoWarmUp is the run time of programs before the measurement.
const demoWarmUp = 2 * time.Second

// demonstration is one run of the command.
type demonstration struct {
	*call
	ctx     context.Context
	seconds time.Duration
	frame   string // where ffmpeg writes its picture
	bench   string // the BlackScholes program
	ffmpeg  string // empty: not installed
	self    string
	results []demoResult
}

// demoResult is one line of the table at the end.
type demoResult struct {
	Policy   string  `json:"policy"`
	Domain   string  `json:"domain"`
	Credits  int     `json:"credits"`
	Entitled float64 `json:"entitled"` // 0: the policy promises nothing
	Measured float64 `json:"measured"`
	Calls    float64 `json:"calls_per_second"`
	WaitP50  int64   `json:"wait_p50_ns"`
	WaitP99  int64   `json:"wait_p99_ns"`
}

func demo(c *call) action {
	c.jsonFlag()
	seconds := c.flags.Float64("seconds", 8, "measure each policy for `n` seconds")
	out := c.flags.String("out", "", "leave ffmpeg's picture in `directory` (default: demo beside the programs, or here)")
	return c.takes(0, 0, func([]string) error {
		if !(*seconds >= 1 && *seconds <= 3600) { // nor NaN
			return usagef("--seconds %v: must be 1 to 3600", *seconds)
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		d := &demonstration{call: c, ctx: ctx, seconds: time.Duration(*seconds * float64(time.Second))}
		if err := d.find(*out); err != nil {
			return err
		}
		for _, policy := range []string{"none", "rr", "accc"} {
			if err := d.underPolicy(policy); err != nil {
				return fmt.Errorf("under %s: %w", policy, err)
			}
		}
		if err := d.withVideo(); err != nil {
			return fmt.Errorf("with ffmpeg beside: %w", err)
		}
		return d.report()
	})
}

// find locates everything before anything starts.
func (d *demonstration) find(out string) (err error) {
	if d.self, err = os.Executable(); err != nil {
		return err
	}
	if _, err := findLibrary(); err != nil {
		return err
	}
	d.bench = filepath.Join(ownDir(), "..", "bench", "blackscholes")
	if _, err := os.Stat(d.bench); err != nil {
		return fmt.Errorf("the BlackScholes program: %w; `make` builds it", err)
	}
	if out == "" {
		out = filepath.Join(ownDir(), "..", "demo")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if d.frame, err = filepath.Abs(filepath.Join(out, "frame.png")); err != nil {
		return err
	}
	if d.ffmpeg, err = exec.LookPath("ffmpeg"); err != nil {
		d.say("ffmpeg isn't installed: leaving it out (apt-get install ffmpeg)\n")
	}
	return nil
}

// say prints progress, away from data.
func (d *demonstration) say(format string, args ...any) { fmt.Fprintf(d.err, format, args...) }

// stage is the demonstration's own daemon and the programs under it.
type stage struct {
	d        *demonstration
	dir      string
	daemon   *client.Client
	programs []*program
}

// program is a running guest.
type program struct {
	domain string
	cmd    *exec.Cmd
	errs   bytes.Buffer
	done   chan error
}

func (d *demonstration) openStage(policy string) (*stage, error) {
	dir, err := os.MkdirTemp("", "pegasus-demo")
	if err != nil {
		return nil, err
	}
	s := &stage{d: d, dir: dir}
	config := filepath.Join(dir, "pegasus.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, demoConfig, policy), 0o644); err != nil {
		s.close()
		return nil, err
	}
	if s.daemon, err = startPrivate(dir, config); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ends the running programs and the daemon.
func (s *stage) close() {
	for _, p := range s.programs {
		p.cmd.Process.Kill()
	}
	if s.daemon != nil {
		if err := shutDown(s.daemon, control.ShutdownParams{}); err != nil {
			s.d.say("end the daemon: %v\n", err)
		}
	}
	for _, p := range s.programs {
		<-p.done
	}
	os.RemoveAll(s.dir)
}

// start runs a program as a guest of a domain.
func (s *stage) start(domain string, command ...string) (*program, error) {
	args := append([]string{"run", "--runtime-dir", s.dir, "--domain", domain, "--"}, command...)
	p := &program{domain: domain, cmd: exec.CommandContext(s.d.ctx, s.d.self, args...), done: make(chan error, 1)}
	p.cmd.Stderr = &p.errs
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	s.programs = append(s.programs, p)
	go func() {
		err := p.cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%s in domain %s: %w: %s", filepath.Base(command[0]), domain, err, bytes.TrimSpace(p.errs.Bytes()))
		}
		p.done <- err
		close(p.done)
	}()
	return p, nil
}

// startAll starts BlackScholes in the three domains, for a while.
func (s *stage) startAll(d time.Duration) error {
	for _, dom := range demoDomains {
		if _, err := s.start(dom.name, s.d.bench, "--seconds", fmt.Sprint(d.Seconds()), "--queue", "2", "--size", "65536", "--quiet", "--json"); err != nil {
			return err
		}
	}
	return s.await(func(all map[string]control.Domain) bool {
		for _, dom := range demoDomains {
			if all[dom.name].GPU == 0 {
				return false
			}
		}
		return true
	})
}

// await polls until ok returns true, or a program has ended.
func (s *stage) await(ok func(map[string]control.Domain) bool) error {
	for start := time.Now(); ; {
		all, err := s.domains()
		if err != nil || ok(all) {
			return err
		}
		if err := s.ended(); err != nil {
			return err
		}
		if time.Since(start) > time.Minute {
			return errors.New("the programs don't begin to use the accelerator")
		}
		if err := s.d.sleep(50 * time.Millisecond); err != nil {
			return err
		}
	}
}

// ended returns the error of a program that has failed.
func (s *stage) ended() error {
	for _, p := range s.programs {
		select {
		case err, first := <-p.done:
			if err != nil || first {
				return errors.Join(err, errEarly)
			}
		default:
		}
	}
	return nil
}

var errEarly = errors.New("a program ended too early")

// finish waits for the programs and checks their results.
func (s *stage) finish() error {
	for _, p := range s.programs {
		select {
		case err := <-p.done:
			if err != nil {
				return err
			}
		case <-s.d.ctx.Done():
			return s.d.ctx.Err()
		}
	}
	return nil
}

func (s *stage) domains() (map[string]control.Domain, error) {
	list, err := s.daemon.Domains(s.d.ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]control.Domain)
	for _, d := range list {
		all[d.Name] = d
	}
	return all, nil
}

func (d *demonstration) sleep(t time.Duration) error {
	select {
	case <-time.After(t):
		return nil
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

// underPolicy runs the three domains under a policy and measures.
func (d *demonstration) underPolicy(policy string) error {
	s, err := d.openStage(policy)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.startAll(demoWarmUp + d.seconds + time.Second); err != nil {
		return err
	}
	if err := s.measure(policy, demoDomains, d.seconds); err != nil {
		return err
	}
	return s.finish()
}
