package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"pegasus/guest/setup"
	"pegasus/guest/xen"
	"pegasus/internal/usage"
)

// install sets the machine up, or undoes that.
func install(out, errs io.Writer) command {
	s := setup.Setup{Library: setup.Embedded, Monitor: setup.EmbeddedMonitor, Out: out}
	var library string
	var remove bool
	flags := newFlags("install")
	flags.BoolVar(&s.DryRun, "dry-run", false, "print the steps, and do nothing")
	flags.BoolVar(&remove, "uninstall", false, "remove what was installed")
	flags.BoolVar(&s.Beside, "beside-driver", false, "leave another driver in place: programs find Pegasus only by LD_LIBRARY_PATH="+setup.LibraryDir)
	flags.Func("root", "install into `directory`, the root of a machine's image", func(dir string) (err error) {
		s.Root, err = rootOf(dir)
		return err
	})
	flags.StringVar(&library, "library", "", "install `file` instead of the libcuda.so.1 that is in this program")
	return command{
		usage.Command{
			Name: "install", Args: "[--dry-run] [--uninstall] [--beside-driver] [--root DIRECTORY] [--library FILE]", Flags: flags,
			Text: "Installs the library and the agent in this virtual machine, as root.",
		},
		func() int {
			if err := setUp(&s, library, remove); err != nil {
				fmt.Fprintln(errs, "pegasus-guest install:", err)
				return 1
			}
			if !remove && !s.DryRun && s.Root == "" {
				fmt.Fprintln(out, "`pegasus-guest doctor` checks whether CUDA programs find an accelerator now.")
			}
			return 0
		},
	}
}

// rootOf returns the path of an image, which must exist: an empty --root does not mean this machine.
func rootOf(dir string) (string, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

func setUp(s *setup.Setup, library string, remove bool) (err error) {
	if s.Root == "" && os.Geteuid() != 0 && !s.DryRun {
		return errors.New("only root can do this, but for --dry-run")
	}
	inXen := s.Root == "" && xen.Here("/")
	if inXen && xen.IsDom0("/") {
		return errors.New("this is Dom0: CUDA programs here need no agent, but `pegasus run`")
	}
	syscall.Umask(0o022) // every user can read the installed files
	if remove {
		if err := s.Uninstall(); err != nil || !inXen || s.DryRun {
			return err
		}
		return xen.Withdraw()
	}
	if s.Self, err = os.Executable(); err != nil {
		return err
	}
	if library != "" {
		if s.Library, err = os.ReadFile(library); err != nil {
			return err
		}
	}
	return s.Install()
}
