// Pegasusd is the daemon that shares the host's accelerators between domains.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"pegasus/backend"
	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/backend/sched"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/hypervisor/kvm"
	"pegasus/hypervisor/linux"
	"pegasus/hypervisor/linux/switches"
	"pegasus/hypervisor/local"
	"pegasus/hypervisor/weightjournal"
	"pegasus/hypervisor/xen/domus"
	"pegasus/internal/logs"
	"pegasus/internal/timerslack"
	"pegasus/internal/usage"
	"pegasus/policies"
)

func main() {
	timerslack.RelaxMonitor() // without the capability, the process only wakes more often
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(work())
	}
	if len(os.Args) > 1 && os.Args[1] == "hub" {
		os.Exit(runHub(os.Args[2:], os.Stderr))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the command line's flags.
type settings struct {
	config, dir string
	private     bool
	once        bool
	linger      time.Duration
	readyFD     int
	check       bool
	level       *string // of the log; empty: the configuration's
	remove      bool
	version     bool
}

// commandLine returns the description of the command line, with flags that set s.
func commandLine(s *settings) *usage.Program {
	f := flag.NewFlagSet("pegasusd", flag.ContinueOnError)
	f.StringVar(&s.config, "config", "", "configuration `file`, with those of FILE.d beside it (default "+configs.Path+" if it exists)")
	f.StringVar(&s.dir, "runtime-dir", "", "`directory` of sockets (default runtime_dir of the configuration, else "+control.SystemDir+" as root)")
	f.BoolVar(&s.private, "private", false, "serve one user's programs and end after the last")
	f.BoolVar(&s.once, "once", false, "with --private: remove the runtime directory, an empty one, at the end")
	f.DurationVar(&s.linger, "linger", 3*time.Second, "end a private daemon when no program has used it for this `time`")
	f.IntVar(&s.readyFD, "ready-fd", -1, "write \"ready\", or the error, to the descriptor `n`")
	f.BoolVar(&s.check, "check", false, "check the configuration and exit")
	s.level = logs.Flag(f, "")
	f.BoolVar(&s.remove, "clear", false, "end all workers and hubs that an ended daemon left running, remove its runtime directory, and exit")
	f.BoolVar(&s.version, "version", false, "print the version and exit")
	return &usage.Program{
		Name: "pegasusd", Short: "the daemon that shares the host's accelerators between domains", Flags: f, See: "pegasus(1), pegasus-libvirt(8), pegasus-nvidia(8)",
		Commands: []usage.Command{
			{Args: "[--config FILE] [--runtime-dir DIRECTORY] [--log-level LEVEL] [--private [--once] [--linger TIME]] [--ready-fd N]"},
			{Args: "--check [--config FILE]"},
			{Args: "--clear [--config FILE] [--runtime-dir DIRECTORY]"},
			{Args: "--version"},
		},
		Text: `As root the daemon serves the host at ` + control.SystemDir + `, with ` + configs.Path + ` if that file exists.
SIGHUP reloads the configuration: ` + "`pegasus reload`" + ` does so and reports mistakes. SIGTERM ends
the daemon. Its workers continue, and the next daemon adopts them.

A private daemon serves the programs of one user's ` + "`pegasus run`" + `, which starts it. It ends after the
last program, with all workers.

The daemon starts "pegasusd worker" for each guest process and "pegasusd hub" for each virtual machine.
These commands have no other use.

The exit status is 0 after SIGTERM, 1 after an error, 2 if the command line is wrong.`,
	}
}

func run(args []string, out, errs io.Writer) int {
	var s settings
	program := commandLine(&s)
	if code := program.Document(args, out, errs); code >= 0 {
		return code
	}
	if code := program.Parse(&program.Commands[0], args, 0, out, errs); code >= 0 {
		return code
	}
	switch {
	case s.version:
		fmt.Fprintln(out, "pegasusd", control.Release())
		return 0
	case s.once && (!s.private || s.dir == ""):
		fmt.Fprintln(errs, "pegasusd: --once takes --private and --runtime-dir")
		return 2
	}
	start := func() error { return s.serve(out, errs) }
	if s.remove {
		start = func() error { return s.clear(errs) }
	}
	if err := start(); err != nil {
		fmt.Fprintln(errs, "pegasusd:", err)
		s.reportStart(err.Error())
		return 1
	}
	return 0
}

// reportStart reports to the process that started the daemon.
func (s *settings) reportStart(text string) {
	if s.readyFD < 0 {
		return
	}
	f := os.NewFile(uintptr(s.readyFD), "ready")
	fmt.Fprintln(f, text)
	f.Close()
	s.readyFD = -1
}

func (s *settings) serve(out, errs io.Writer) error {
	if s.readyFD >= 0 {
		syscall.CloseOnExec(s.readyFD)
	}
	config, path, err := s.load()
	if err != nil {
		return err
	}
	if s.check {
		if path == "" {
			path = "no configuration file, the defaults hold"
		}
		for _, w := range config.Warnings {
			fmt.Fprintln(out, w)
		}
		fmt.Fprintf(out, "%s: fine\n", path)
		return nil
	}
	dir, err := s.runtimeDir(config)
	if err != nil {
		return err
	}
	if s.once {
		if err := markOnce(dir); err != nil {
			return err
		}
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if s.once {
		defer os.RemoveAll(dir)
	}
	level := &slog.LevelVar{}
	setLevel := func(text string) { level.UnmarshalText([]byte(text)) }
	setLevel(cmp.Or(*s.level, config.Daemon.LogLevel))
	os.Setenv(logs.FormatVariable, config.Daemon.LogFormat) // for workers and hubs, too
	// A guest's flood of log lines must not end the daemon when the reader has gone.
	signal.Ignore(syscall.SIGPIPE)
	lines := newSink(errs)
	defer lines.close()
	log := logger(lines, level)
	weights := filepath.Join(dir, raisedDir)
	weightjournal.Sweep(weights, log, putBack)
	cpus := linux.NewCPUs(log, switches.Load)
	options := backend.Options{
		Config: config, ConfigPath: path, Accept: accepted, RuntimeDir: dir, Private: s.private, Linger: s.linger,
		Adapter:  local.Adapter{Dir: filepath.Join(dir, "domains"), Log: log},
		CPUs:     cpus,
		Raiser:   cpus.Raiser(weights),
		Runs:     func() hypervisor.Runs { return linux.NewRuns(log, switches.Load) },
		Hardware: openHardware(config.Daemon, log),
		Worker:   []string{"/proc/self/exe", "worker"},
		Workers:  map[string][]string{"nvidia": nvidiaWorker()},
		Absent:   absentNVIDIA(config, "/dev/nvidiactl"),
		Log:      log, SetLogLevel: setLevel, RuntimeDirGiven: s.dir != "", LogLevel: *s.level,
	}
	var known *machineWatcher
	var units *xenHost
	dom0 := !s.private && domus.IsDom0(xenCapabilities)
	if dom0 {
		release, err := claimMachines(attachments(config.Daemon).Claim)
		if err != nil {
			return err
		}
		defer release()
		if units, err = openXen(config.Daemon, dir, log); err != nil {
			log.Error("domUs can't be served; pegasus doctor lists the missing parts", "err", err)
		} else {
			units.give(&options, weights)
			options.Runs = func() hypervisor.Runs { return tracedRuns(units.readers, log) }
		}
	} else if known = machines(config.Daemon, log); known != nil {
		options.Machines = known
		options.Agent = func(name string) (string, bool) { return kvm.AgentOf(filepath.Join(config.Daemon.Regions, name)) }
	}
	serves := config.Daemon.Regions != "" && !dom0
	if serves {
		release, err := claimMachines(func(ctx context.Context) (func(), error) { return kvm.Claim(ctx, config.Daemon.Regions) })
		if err != nil {
			return err
		}
		defer release()
	}
	d, err := backend.New(options)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	return d.Run(ctx, func() {
		s.reportStart("ready")
		systemd := newService(log, d.Turns, d.Summary)
		systemd.ready()
		go systemd.run(ctx)
		if units != nil {
			go units.keepHubs(ctx, log)
		}
		if serves {
			go keepHubs(ctx, config.Daemon.Regions, dir, known, log)
		}
		go func() {
			for range reload {
				systemd.reload(d.Reload)
			}
		}()
	})
}

// accepted are the names that configurations may use.
var accepted = configs.Options{Policies: policies.Names(), Types: acceleratorTypes, Specification: sched.Specification}

// load reads the requested configuration, otherwise the host's if there is one.
func (s *settings) load() (*configs.Config, string, error) {
	path := s.config
	if path == "" {
		if s.private {
			return configs.Default(), "", nil
		}
		path = configs.Path
		if !configs.Exists(path) {
			return configs.Default(), "", nil
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, "", err
	}
	c, err := configs.Load(path, accepted)
	return c, path, err
}

func (s *settings) runtimeDir(c *configs.Config) (string, error) {
	dir, mode := s.dir, os.FileMode(0o755)
	var err error
	switch {
	case dir != "":
	case c.Daemon.RuntimeDir != "":
		dir = c.Daemon.RuntimeDir
	case os.Geteuid() == 0 && !s.private:
		dir = control.SystemDir
	default:
		dir, err = control.PrivateDir()
	}
	if err != nil {
		return "", err
	}
	if s.private || os.Geteuid() != 0 {
		mode = 0o700
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	return dir, control.MakeRuntimeDir(dir, mode)
}

// lockTime is the time for which a daemon waits for the previous one to end.
const lockTime = 10 * time.Second

// lock ensures that a runtime directory has only one daemon.
func lock(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, control.DaemonLock)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		ends := !errors.Is(err, syscall.EWOULDBLOCK) || time.Since(start) > lockTime || serves(dir)
		if ends {
			f.Close()
			return nil, fmt.Errorf("%s has a daemon already (%w); end it with `pegasus stop`, or give another --runtime-dir", dir, err)
		}
	}
}

// markOnce marks a runtime directory as one that is removed at the end. It returns an error for a directory
// with files other than the log, which would be removed with it.
func markOnce(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name() != control.PrivateLog {
			return fmt.Errorf("--once: the runtime directory %s would be removed at the end, and has %s in it; give an empty one", dir, f.Name())
		}
	}
	return os.WriteFile(filepath.Join(dir, control.OnceMark), nil, 0o600)
}

// serves reports whether the daemon of a directory answers; otherwise it is ending.
func serves(dir string) bool {
	c, err := client.Dial(filepath.Join(dir, control.SocketName))
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Status(context.Background())
	return err == nil
}

// logger returns a log with bounds on the lines that guests cause.
func logger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(newBrake(logs.New(w, level).Handler()))
}
