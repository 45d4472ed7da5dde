//go:build soak

// Package operate tests Pegasus as an operator of a host meets it.
package operate

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const repository = "../.."

// TestOperatePackages installs the packages in a bare Debian that systemd runs, upgrades them while guests compute, and
// removes them. It needs root, and the packages of `make operate-test`.
func TestOperatePackages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("systemd-nspawn needs root: run the tests as root")
	}
	first, second := makePackages(t, "0.1", "first"), makePackages(t, "0.2", "second")
	again := makePackages(t, "0.2", "second")
	for name, sum := range sums(t, second) {
		if sums(t, again)[name] != sum {
			t.Errorf("%s differs when it is built again", name)
		}
	}
	checkPackages(t, second)

	h := boot(t)
	h.copy(t, filepath.Join(repository, "build/bench/busy"), "/root/busy")
	for _, dir := range []string{first, second} {
		h.copy(t, filepath.Join(dir, "pegasus.deb"), "/root/"+filepath.Base(dir)+".deb")
	}
	// systemd-nspawn mounts these read-only under version 1 of cgroups.
	h.try("sh", "-c", "for c in memory cpu; do mount -o remount,bind,rw /sys/fs/cgroup/$c; done")
	before := h.files(t)

	h.run(t, "dpkg", "-i", "/root/"+filepath.Base(first)+".deb")
	if got := h.run(t, "systemctl", "is-active", "pegasusd"); got != "active" {
		t.Fatalf("after the installation the daemon is %s", got)
	}
	if got := h.run(t, "pegasus", "version"); strings.Count(got, "first") != 2 {
		t.Errorf("versions %q, want first twice", got)
	}
	exposure := h.run(t, "systemd-analyze", "security", "--no-pager", "pegasusd")
	if m := regexp.MustCompile(`exposure level for pegasusd.service: ([0-9.]+)`).FindStringSubmatch(exposure); m == nil {
		t.Errorf("systemd-analyze security: %s", exposure)
	} else if f, _ := strconv.ParseFloat(m[1], 64); f > 4 {
		t.Errorf("systemd-analyze security: %s, want at most 4.0", m[1])
	} else {
		t.Logf("systemd-analyze security: %s", m[1])
	}
	// The configuration of an operator: kept by an upgrade and a removal.
	t.Log(h.run(t, "pegasus", "init"))
	h.run(t, "sh", "-c", "echo '# mine' >>/etc/pegasus/pegasus.toml")
	h.run(t, "systemctl", "reload", "pegasusd")
	h.run(t, "sh", "-c", "echo nonsense >/etc/pegasus/pegasus.toml.d/bad.toml; ! systemctl reload pegasusd; rm /etc/pegasus/pegasus.toml.d/bad.toml; systemctl reload pegasusd")

	// Two domains share the accelerator 1:3 over the upgrade.
	h.run(t, "pegasus", "create", "one", "credits=256")
	h.run(t, "pegasus", "create", "three", "credits=768")
	guests := []*exec.Cmd{}
	var outputs [2]bytes.Buffer
	for i, domain := range []string{"one", "three"} {
		c := h.command("pegasus", "run", "--domain", domain, "--", "/root/busy", "--seconds", "40", "--queue", "4", "--kernel-ms", "5")
		c.Stdout, c.Stderr = &outputs[i], &outputs[i]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		guests = append(guests, c)
	}
	h.shares(t, "before the upgrade")
	h.run(t, "dpkg", "-i", "/root/"+filepath.Base(second)+".deb")
	if got := h.run(t, "pegasus", "version"); strings.Count(got, "second") != 2 {
		t.Errorf("after the upgrade: versions %q, want second twice", got)
	}
	if got := h.run(t, "tail", "-n", "1", "/etc/pegasus/pegasus.toml"); got != "# mine" {
		t.Errorf("the upgrade changed the configuration: it ends in %q", got)
	}
	h.shares(t, "after the upgrade")
	for i, c := range guests {
		if err := c.Wait(); err != nil {
			t.Errorf("guest %d: %v\n%s", i, err, outputs[i].String())
		}
	}
	if got := h.run(t, "systemctl", "show", "-p", "NRestarts", "--value", "pegasusd"); got != "0" {
		t.Errorf("the daemon was restarted %s times by systemd", got)
	}

	// The watchdog replaces a daemon that hangs; guests continue meanwhile.
	c := h.command("pegasus", "run", "--domain", "one", "--", "/root/busy", "--seconds", "50")
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	main := func() string {
		out, _ := h.try("systemctl", "show", "-p", "MainPID", "--value", "pegasusd")
		return out
	}
	guest := func() bool {
		out, err := h.try("pegasus", "version", "--json")
		return err == nil && strings.Contains(out, `"guests": 1`)
	}
	h.eventually(t, "a guest", guest)
	hung := main()
	h.run(t, "sh", "-c", "kill -STOP "+hung)
	h.eventually(t, "another daemon", func() bool {
		out, err := h.try("systemctl", "is-active", "pegasusd")
		return err == nil && out == "active" && main() != hung
	})
	if err := c.Wait(); err != nil {
		t.Errorf("a guest beside a daemon that hung: %v\n%s", err, output.String())
	}

	// A removal ends the guests' use of the accelerator, and leaves configuration only.
	c = h.command("pegasus", "run", "--domain", "one", "--", "/root/busy", "--seconds", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, "a guest", guest)
	h.run(t, "dpkg", "--remove", "pegasus")
	if err := c.Wait(); err == nil {
		t.Error("a guest computed on after the removal")
	}
	h.noProcesses(t)
	left := difference(before, h.files(t))
	t.Logf("after the removal: %v", left)
	for _, path := range left {
		if !strings.HasPrefix(path, "/etc/") && path != "/var/lib/pegasus" {
			t.Errorf("the removal left %s, which is no configuration", path)
		}
	}
	if !slices.Contains(left, "/etc/pegasus/pegasus.toml") {
		t.Error("the removal left no configuration")
	}
	h.run(t, "dpkg", "--purge", "pegasus")
	h.noProcesses(t)
	if left := difference(before, h.files(t)); len(left) > 0 {
		t.Errorf("the purge left %v", left)
	}
	if out, err := h.try("sh", "-c", "getent group pegasus; ls -d /sys/fs/cgroup/*/pegasus.domain-one /sys/fs/cgroup/*/pegasus.domain-three 2>/dev/null; systemctl list-units --all | grep pegasus"); out != "" {
		t.Errorf("after the purge (%v): %s", err, out)
	}

	// A machine's package: programs find its library, and systemd holds the socket of its agent.
	h.copy(t, filepath.Join(second, "pegasus-guest_0.2-1_amd64.deb"), "/root/guest.deb")
	h.run(t, "dpkg", "-i", "/root/guest.deb")
	if got := h.run(t, "ldconfig", "-p"); !strings.Contains(got, "libcuda.so.1") {
		t.Error("the loader does not find libcuda.so.1 of pegasus-guest")
	}
	if got := h.run(t, "systemctl", "is-active", "pegasus-guest.socket"); got != "active" {
		t.Errorf("pegasus-guest.socket is %s", got)
	}
	h.run(t, "test", "-S", "/run/pegasus/guest.sock")
	h.run(t, "dpkg", "--purge", "pegasus-guest")
	h.noProcesses(t)
	if left := difference(before, h.files(t)); len(left) > 0 {
		t.Errorf("the purge of pegasus-guest left %v", left)
	}
}

// makePackages builds the packages with a version and a release, and returns a directory with the host's as pegasus.deb,
// and the others.
func makePackages(t *testing.T, version, release string) string {
	t.Helper()
	cmd := exec.Command("make", "-C", repository, "packages", "PACKAGE_VERSION="+version, "RELEASE="+release)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make packages: %v\n%s", err, out)
	}
	dir := filepath.Join(t.TempDir(), release)
	if err := os.CopyFS(dir, os.DirFS(repository+"/build/packages")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "pegasus_"+version+"-1_amd64.deb"), filepath.Join(dir, "pegasus.deb")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sums returns the checksums of a directory's files.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, _ := filepath.Glob(dir + "/*")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return all
}

// checkPackages runs the checkers of Debian and of rpm.
func checkPackages(t *testing.T, dir string) {
	t.Helper()
	debs, _ := filepath.Glob(dir + "/pegasus*_*.deb")
	out, err := exec.Command("lintian", append([]string{"--allow-root", "--fail-on", "error"}, debs...)...).CombinedOutput()
	if err != nil || len(debs) != 2 {
		t.Errorf("lintian %v: %v", debs, err)
	}
	t.Logf("lintian:\n%s", out)
	rpms, _ := filepath.Glob(dir + "/*.rpm")
	for _, rpm := range rpms {
		list, err := exec.Command("rpm", "-qlp", rpm).CombinedOutput()
		if err != nil || !strings.Contains(string(list), "/usr/bin/pegasus") {
			t.Errorf("rpm -qlp %s: %v\n%s", rpm, err, list)
		}
	}
	if len(rpms) != 2 {
		t.Errorf("%d packages of rpm, want 2", len(rpms))
	}
}

// host is a running container with Debian and systemd.
type host struct {
	root   string
	leader int // its systemd, as this host numbers it
}

// boot makes and starts a bare Debian 12 with systemd. The archive of its files is kept in build/operate.
func boot(t *testing.T) *host {
	t.Helper()
	archive := repository + "/build/operate/debian.tar"
	if _, err := os.Stat(archive); err != nil {
		if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mmdebstrap", "--variant=minbase", "--include=systemd,systemd-sysv", "bookworm", archive+".new.tar").CombinedOutput(); err != nil {
			t.Fatalf("mmdebstrap: %v\n%s", err, out)
		}
		if err := os.Rename(archive+".new.tar", archive); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.MkdirTemp("/var/tmp", "pegasus-operate-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", root, "--exclude=./dev/*", "-xf", archive).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("systemd-nspawn", "-D", root, "--boot", "--register=no", "--keep-unit", "--link-journal=no", "--machine", filepath.Base(root))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &host{root: root}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // powers it off
		select {
		case <-ended:
		case <-time.After(time.Minute):
			cmd.Process.Kill()
			<-ended
		}
	})
	h.eventually(t, "systemd", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		children := strings.Fields(string(text))
		if len(children) == 0 {
			return false
		}
		h.leader, _ = strconv.Atoi(children[0])
		state, _ := h.try("systemctl", "is-system-running")
		return state == "running" || state == "degraded"
	})
	return h
}

// command returns a command that runs in the container.
func (h *host) command(args ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(h.leader), "-m", "-u", "-i", "-n", "-p", "--root", "--wd",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"}
	return exec.Command("nsenter", append(enter, args...)...)
}

func (h *host) try(args ...string) (string, error) {
	out, err := h.command(args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (h *host) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.try(args...)
	if err != nil {
		journal, _ := h.try("journalctl", "--no-pager", "-n", "40")
		t.Fatalf("%v: %v\n%s\n%s", args, err, out, journal)
	}
	return out
}

func (h *host) copy(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(h.root+to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (h *host) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// shares checks that the domains use the accelerator 1:3, by their accounts over some seconds.
func (h *host) shares(t *testing.T, when string) {
	t.Helper()
	read := func() map[string]float64 {
		var all []struct {
			Name string  `json:"name"`
			NS   float64 `json:"gpu_ns"`
		}
		if err := json.Unmarshal([]byte(h.run(t, "pegasus", "domains", "--json")), &all); err != nil {
			t.Fatal(err)
		}
		used := map[string]float64{}
		for _, d := range all {
			used[d.Name] = d.NS
		}
		return used
	}
	h.eventually(t, "both domains compute", func() bool { u := read(); return u["one"] > 3e8 && u["three"] > 3e8 })
	from := read()
	time.Sleep(6 * time.Second)
	to := read()
	one, three := to["one"]-from["one"], to["three"]-from["three"]
	part := 100 * three / (one + three)
	t.Logf("%s: %.0f ms and %.0f ms, the larger part is %.1f %%", when, one/1e6, three/1e6, part)
	if math.Abs(part-75) > 3 {
		t.Errorf("%s: the domain with 3/4 of the credits has %.1f %%", when, part)
	}
}

// noProcesses checks that no program of the packages runs.
func (h *host) noProcesses(t *testing.T) {
	t.Helper()
	out, _ := h.try("sh", "-c", "for p in /proc/[0-9]*; do readlink $p/exe; done | grep pegasus")
	if out != "" {
		t.Errorf("processes are left: %s", out)
	}
}

// unrelated are the places where dpkg, ldconfig, getty and systemd themselves write.
var unrelated = regexp.MustCompile(`^/(proc|sys|dev/(pts|hugepages|mqueue)|var/log|var/cache|var/lib/(dpkg|systemd)|run/(systemd|log|udev|user|utmp|lock|agetty.reload)|root|tmp|etc/(ld\.so\.cache|g?shadow-|group-|passwd-))(/|$)`)

// files returns the files of the container, those in memory included, with their contents.
func (h *host) files(t *testing.T) map[string]string {
	t.Helper()
	top := fmt.Sprintf("/proc/%d/root/", h.leader) // with a slash: it is a link
	all := map[string]string{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		name := "/" + strings.TrimPrefix(path, top)
		if unrelated.MatchString(name) {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil {
			return nil // it has just gone
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		all[name] = info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[name] += fmt.Sprintf(" %x", sha256.Sum256(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 1000 {
		t.Fatalf("a list of %d files only", len(all))
	}
	return all
}

// difference returns the paths that two lists do not have in common, or with other contents.
func difference(before, after map[string]string) (paths []string) {
	for path, is := range after {
		if before[path] != is {
			paths = append(paths, path)
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			paths = append(paths, path+" is missing")
		}
	}
	slices.Sort(paths)
	return paths
}
