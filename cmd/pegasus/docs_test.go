package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
)

const repository = "../.."

// documented is a command that a page or a help text shows.
type documented struct {
	where, command string
}

// pages returns the commands in the README, docs/ and the help texts.
func pages(t *testing.T) map[string][]documented {
	t.Helper()
	files, err := filepath.Glob(repository + "/docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no docs: %v", err)
	}
	all := map[string][]documented{}
	for _, file := range append(files, repository+"/README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if name == "zz_commands.md" { // the help texts
			continue
		}
		all[name] = commandsIn(name, string(text), "    ")
	}
	for _, c := range commands() {
		all["help"] = append(all["help"], commandsIn("pegasus help "+c.name, c.long, "  ")...)
	}
	return all
}

// commandLine matches an indented line that begins with one of the programs that pages use, or with variables for it.
var commandLine = regexp.MustCompile(`^((?:export |[A-Z_]+=\S+ )*)((?:build/bin/|\./)?pegasus[a-z-]*|make|go|install|ln|docker|tar|visit/visit|gcc|apt-get|build/\S+|program)( |$)`)

// commandsIn returns the commands of blocks with this indentation. Text after two spaces is a remark.
func commandsIn(name, text, indent string) (all []documented) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line, ok := strings.CutPrefix(lines[i], indent)
		if !ok || !commandLine.MatchString(line) {
			continue
		}
		where := fmt.Sprintf("%s:%d", name, i+1)
		for strings.HasSuffix(line, "\\") && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, "\\") + strings.TrimSpace(lines[i])
		}
		line, _, _ = strings.Cut(line, "  ")
		line, _, _ = strings.Cut(line, " #")
		all = append(all, documented{where, strings.TrimSpace(line)})
	}
	return all
}

// elsewhere are the prefixes of the commands that are not run here, with the tests that run them.
var elsewhere = []string{
	"make",                // scripts/fresh-test, and checked below
	"apt-get",             // scripts/fresh-test
	"install", "ln", "go", // checked below
	"docker", "tar", "gcc", // other programs
	"visit/visit", "pegasus-guest", "./pegasus-guest", // test/vm, tools/visit
	"export", "LD_LIBRARY_PATH=build/record", "build/bin/pegasus run -- build/record/replay", "build/bin/pegasus run --private -- /tmp/sweep", "OMP_TARGET_OFFLOAD", // test
	"PEGASUS_TEST_SCRIPT",
	"pegasus demo",                                    // make run
	"pegasus completion",                              // testdata/completion.txtar
	"pegasus set web weight", "pegasus set web slice", // test/xen
	"pegasus fleet", // cluster/test, and testdata/fleet.txtar
}

// placeholders replaces the pages' placeholders.
var placeholders = strings.NewReplacer(
	"build/bin/pegasus", "pegasus", "ffmpeg -init_hw_device cuda", "true", "./my-cuda-program", "guest", "./bench", "guest",
	"build/bench/reduction --seconds 1", "guest --seconds 0.2", "build/bench/busy --quiet --queue 4 --seconds 600", "guest --seconds 0.2", "PROGRAM", "true", "…", "", "www-data", fmt.Sprint(os.Getuid()))

// optional matches the parts that a page marks as optional.
var optional = regexp.MustCompile(`\[(--[^]]*)\]`)

// follower matches commands that run until they are interrupted.
var follower = regexp.MustCompile(`^pegasus (events|domains --watch|trace --accelerator)`)

// simulation matches commands of the simulator alone, which no daemon and no other command of the page
// affects: a command on several pages is run once.
var simulation = regexp.MustCompile(`^(build/bin/)?pegasus sim (run )?(P4|all|--report DIR)$`)

// simulator matches the commands that simulate. With -short, as under the race detector, none is run: the scenarios take
// minutes there, and sim has tests of its own.
var simulator = regexp.MustCompile(`^(build/bin/)?pegasus sim (run|replay|coordination)`)

// refused are commands that may fail here, with the message.
var refused = map[string]string{
	"pegasus doctor":                      "",
	"pegasus sim run P4":                  "failed", // with one seed
	"pegasus sim run all":                 "failed", // docs/simulator.md names them
	"pegasus sim run --report DIR":        "failed",
	"pegasus sim coordination both.trace": "nothing to judge", // of programs in no virtual machine
	"pegasus trace --cpus":                "nothing to judge",
	"pegasus stop --if-idle":              "in use",
	"pegasus top":                         "no terminal", // test/operate
}

// before are the commands that restore the preconditions of a command after the ones before it.
var before = map[string]string{
	"pegasus remove web --kill":         "pegasus create web",
	"pegasus attach web --memory 96MiB": "pegasus detach web --regions $SHM",
	"pegasus detach web --live":         "pegasus attach web --memory 512MiB --device ivshmem --regions $SHM --hooks $WORK/hooks",
}

// TestDocumentedCommands runs the commands of README.md, docs/*.md and the help texts, page by page, each
// page with a daemon of its own and with a domain "render" in use. A scenario runs with one seed, and a file
// that a command reads has the contents shown on the page.
func TestDocumentedCommands(t *testing.T) {
	params := scriptParams(t)
	params.Dir, params.Files = "", nil
	params.Cmds["documented"] = runDocumented
	dir := t.TempDir()
	machine, err := txtar.ParseFile("testdata/attach.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all := pages(t)
	simulated := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		script := "exec pegasus run --config laptop.toml --domain render -- sh -c 'while [ ! -e end ]; do sleep 0.1; done' &\neventually render pegasus domains\n"
		n := 0
		for _, c := range all[name] {
			if testing.Short() && simulator.MatchString(c.command) {
				continue
			}
			if simulation.MatchString(c.command) {
				if simulated[c.command] {
					continue
				}
				simulated[c.command] = true
			}
			if !slices.ContainsFunc(elsewhere, func(begin string) bool { return strings.HasPrefix(c.command+" ", begin) }) {
				script += fmt.Sprintf("documented '%s' '%s'\n", c.where, strings.ReplaceAll(c.command, "'", "''"))
				n++
			}
		}
		if n == 0 {
			continue
		}
		archive := &txtar.Archive{Comment: []byte(script + "exec touch end\nexec pegasus stop\nwait\n")}
		archive.Files = append(archive.Files, txtar.File{Name: "mine.toml", Data: []byte(exampleScenario(t))})
		for _, f := range machine.Files {
			if f.Name == "web.xml" {
				archive.Files = append(archive.Files, f)
			}
		}
		examples, _ := filepath.Glob(repository + "/configs/examples/*.toml")
		for _, e := range examples {
			text, err := os.ReadFile(e)
			if err != nil {
				t.Fatal(err)
			}
			archive.Files = append(archive.Files, txtar.File{Name: filepath.Base(e), Data: text})
		}
		file := filepath.Join(dir, strings.TrimSuffix(name, ".md")+".txtar")
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		params.Files = append(params.Files, file)
	}
	testscript.Run(t, params)
}

// runDocumented runs a command of a page like a shell.
func runDocumented(ts *testscript.TestScript, _ bool, args []string) {
	where, command := args[0], placeholders.Replace(args[1])
	work := ts.Getenv("WORK")
	command = optional.ReplaceAllString(command, "$1")
	if _, err := exec.LookPath("jq"); err != nil {
		command, _, _ = strings.Cut(command, " | jq")
	}
	switch {
	case command == "pegasus init": // the default is this host's
		command += " --output init.toml --force"
	case strings.HasPrefix(command, "pegasus attach"):
		command += fmt.Sprintf(" --regions %s --hooks %s/hooks", ts.Getenv("SHM"), work)
	case strings.HasPrefix(command, "pegasus detach"):
		command += fmt.Sprintf(" --regions %s", ts.Getenv("SHM"))
	case strings.HasPrefix(command, "pegasus sim run P"), command == "pegasus sim run all", strings.HasPrefix(command, "pegasus sim run --report"):
		if !strings.Contains(command, "--plan") {
			command += " --seeds 1"
		}
	}
	if before := before[args[1]]; before != "" {
		command = os.Expand(before, ts.Getenv) + " && " + command
	}
	limit := "600" // the reports of all scenarios take minutes on a busy host
	if follower.MatchString(command) {
		limit = "1"
	}
	err := ts.Exec("timeout", "-k", "10", limit, "sh", "-c", "PATH="+ts.Getenv("PATH")+"; "+command)
	said := ts.ReadFile("stderr")
	if err == nil || limit == "1" && strings.Contains(err.Error(), "124") {
		return
	}
	for begin, message := range refused {
		if strings.HasPrefix(strings.TrimPrefix(args[1], "build/bin/"), begin) && strings.Contains(said, message) && strings.Contains(err.Error(), "exit status 1") {
			return
		}
	}
	ts.Fatalf("%s: %s: %v\n%s", where, command, err, said)
}

// exampleScenario returns the scenario in the help of sim.
func exampleScenario(t *testing.T) string {
	t.Helper()
	_, text, ok := strings.Cut(find("sim").long, "the smallest:\n\n")
	text, _, ended := strings.Cut(text, "\n\n")
	if !ok || !ended {
		t.Fatal("pegasus help sim shows no scenario")
	}
	return strings.ReplaceAll(text, "\n  ", "\n") + "\n"
}

// Of the commands that are not run here, the make targets and the files of the repository exist.
func TestDocumentedFiles(t *testing.T) {
	makefile, err := os.ReadFile(repository + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range pages(t) {
		for _, c := range all {
			words := strings.Fields(c.command)
			for i, word := range words {
				target := words[0] == "make" && i > 0 && !strings.Contains(word, "=")
				if target && !regexp.MustCompile(`(?m)^`+word+`:`).Match(makefile) {
					t.Errorf("%s: %s: there is no target %s", c.where, c.command, word)
				}
				word = strings.TrimPrefix(word, "./")
				if program, ok := strings.CutPrefix(word, "build/cluster/"); ok { // by make cluster
					word = "cluster/cmd/" + program
				}
				if regexp.MustCompile(`^(cmd|cluster|configs|scripts|test)/`).MatchString(word) {
					if _, err := os.Stat(filepath.Join(repository, word)); err != nil {
						t.Errorf("%s: %s: %v", c.where, c.command, err)
					}
				}
				packaged := strings.HasPrefix(word, "build/packages/") // by make packages; test/operate installs them
				if built := os.Getenv("PEGASUS_BUILD"); built != "" && strings.HasPrefix(word, "build/") && !packaged {
					if _, err := os.Stat(filepath.Join(built, strings.TrimPrefix(word, "build/"))); err != nil {
						t.Errorf("%s: %s: %v", c.where, c.command, err)
					}
				}
			}
		}
	}
}

// Commands within a page's text exist, and so do their flags.
func TestDocumentedFlags(t *testing.T) {
	files, _ := filepath.Glob(repository + "/docs/*.md")
	inline := regexp.MustCompile("`(?:build/bin/)?pegasus ([^`]*)`")
	for _, file := range append(files, repository+"/README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range inline.FindAllStringSubmatch(string(text), -1) {
			words := strings.Fields(match[1])
			if words[0] == "help" {
				words = words[1:]
			}
			cmd := find(words[0])
			if cmd == nil {
				t.Errorf("%s: pegasus %s: there is no such command", filepath.Base(file), match[1])
				continue
			}
			c := newCall(cmd, &streams{strings.NewReader(""), io.Discard, io.Discard})
			cmd.run(c)
			for _, word := range words[1:] {
				if word == "--" {
					break
				}
				if name, ok := strings.CutPrefix(strings.Trim(word, "[]"), "--"); ok && c.flags.Lookup(name) == nil {
					t.Errorf("%s: pegasus %s: there is no flag --%s", filepath.Base(file), match[1], name)
				}
			}
		}
	}
}
